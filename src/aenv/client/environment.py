"""`Environment`: one instance, from creation to release.

    async with Environment("my-env@1.0.0") as env:
        result = await env.call_tool("search_code", {"query": "def main"})

Constructing opens no connection. The client chooses the instance's id, so that a repeated create is the same
instance and a cancelled one can be deleted. N tool calls cost N + 2 requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import unquote

from ..base import mcp, quantities, refs, settings, wire
from ..base.addresses import Origin
from ..base.errors import AEnvError, ConnectFailed, EnvironmentError, NetworkError, ToolError, ToolTimeoutError
from ..base.http1 import Response
from . import address, formats, launch, where
from .breaker import THRESHOLD, Breaker
from .embedded import forwarded, found_by, other_ways, platform
from .instance_replies import Instance
from .launch import ReadyInstance, RetryLimits
from .names import ToolNames
from .result import Progress, ToolResult, from_mcp
from .session import OnProgress, Session

if TYPE_CHECKING:
    from pathlib import Path

    from .group import Group
    from .remote import Finished, Remote, RemoteOutput

logger = logging.getLogger("aenv.client.environment")

T = TypeVar("T")


class Environment:
    """An instance of an environment. The long signature is the published one; keep its order."""

    _CIRCUIT_BREAKER_THRESHOLD: ClassVar[int] = THRESHOLD

    def __init__(
        self,
        env_name: str,
        datasource: str = "",
        ttl: str | None = None,
        environment_variables: Mapping[str, str | Mapping[str, str]] | None = None,
        arguments: list[str] | None = None,
        aenv_url: str | None = None,
        timeout: float = 60.0,
        startup_timeout: float = 500.0,
        max_retries: int = 10,
        api_key: str | None = None,
        skip_for_healthy: bool = False,
        enable_data_plane: bool = True,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        mount_points: list[dict[str, Any]] | None = None,
        init_command: str | None = None,
        *,
        resources: dict[str, str] | None = None,
        network: str | dict[str, list[str]] | None = None,
        attach: str | None = None,
        runtime_url: str | None = None,
        wait: str | None = None,
        self_check: bool = True,
        model_url: str | None = None,
        model_key: str | None = None,
    ) -> None:
        """`attach` uses the instance of that id and does not end it. `runtime_url` talks straight to a runtime,
        as the variable DUMMY_INSTANCE_IP does where `aenv_url` is not given; "" ignores that variable. `wait`
        ("30s") is how long the create may queue for its turn when a quota or the machine is full. `network`
        ("none", or {"egress": ["host:443"]}) lets the instance reach less than its environment asks for. Without
        `self_check` rewards are given before their task has been checked. The model at `model_url` can be asked
        from inside, at OPENAI_BASE_URL and ANTHROPIC_BASE_URL; `model_key` does not get there.
        """
        known = settings.client_settings()
        self.env_name = env_name
        self.datasource = datasource
        self.ttl = ttl
        self.environment_variables = environment_variables or {}
        self.arguments = arguments or []
        self.timeout = timeout
        self.max_retries = max_retries
        self.skip_for_healthy = skip_for_healthy
        self.enable_data_plane = enable_data_plane
        self.owner = owner
        self.labels = labels
        self.mount_points = mount_points
        self.init_command = init_command
        self.resources = resources
        self.network = network
        self.wait = wait
        self.self_check = self_check
        self._model = {"url": model_url, "key": model_key or ""} if model_url else None
        self.checked: tuple[str, str] | None = None
        """How the self-check of the task stands, and why, as the last reward said: ("held", "")."""
        found = where.find(known, aenv_url, api_key, runtime_url=runtime_url)
        self.dummy_instance_ip: str | None = found.runtime
        self.api_key = found.api_key
        self.proxy_headers: dict[str, str] = {}
        self._url = found.url
        self._attach = attach
        self._startup_timeout = startup_timeout
        self._settings = known
        self._ref = refs.parse(env_name)
        if ttl is not None:
            quantities.seconds(ttl)
        patience = None if wait is None else quantities.seconds(wait)
        self._limits = RetryLimits(timeout, startup_timeout, max_retries, patience)
        self._set_published_urls(found.runtime or found.url or "http://localhost")
        self._launched: ReadyInstance | None = None
        self._tools: list[dict[str, Any]] | None = None
        self._names = ToolNames(env_name, None)
        self._breaker = Breaker()
        self._initialized = False
        self._starting = asyncio.Lock()

    def _set_published_urls(self, url: str) -> None:
        """Attributes that published callers read; nothing of ours uses them."""
        self.aenv_control_url = address.published_url(url, address.CONTROL_PORT)
        self.aenv_data_url = address.published_url(url, address.DATA_PORT, "/mcp")
        self.aenv_health_url = address.published_url(url, address.DATA_PORT, "/health")
        self.aenv_reward_url = address.published_url(url, address.DATA_PORT, "/task/reward")
        self.aenv_functions_base_url = address.published_url(url, address.DATA_PORT, "/functions")

    # Lifecycle.

    async def __aenter__(self) -> Environment:
        await self.initialize()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()

    @classmethod
    def create_many(cls, n: int, env_name: str, *args: Any, **kwargs: Any) -> Group:
        """`n` environments in one request: all of them, or none. Takes the same arguments as one does.

        async with Environment.create_many(8, "my-env@1.0.0") as envs: ...   # leaving releases them all
        envs = await Environment.create_many(8, "my-env@1.0.0")              # each is released by itself
        """
        from .group import Group

        return Group([cls(env_name, *args, **kwargs) for _ in range(n)])

    async def initialize(self) -> bool:
        """Create the instance and return once it is ready; again, do nothing."""
        async with self._starting:
            if not self._initialized:
                self._take(await self._launch())
        return True

    def _take(self, launched: ReadyInstance) -> None:
        self._launched = launched
        self._tools = launched.instance.tools
        self._names = ToolNames(self.env_name, launched.instance.version, self._tools or ())
        self.proxy_headers = dict(launched.headers)
        self._initialized = True
        logger.info("instance %s is ready", self.instance_id)

    async def _launch(self) -> ReadyInstance:
        if self.dummy_instance_ip:
            origin = address.direct_origin(self.dummy_instance_ip)
            probe = self.enable_data_plane and not self.skip_for_healthy
            return await launch.direct(origin, self._limits, self._attach, probe=probe)
        return await self._at_gateway(self._launch_at)

    async def _launch_at(self, control: Origin) -> ReadyInstance:
        if self._attach:
            return await launch.attach(control, self.api_key, self._limits, self._attach)
        id = wire.new_instance_id(self._ref.name)
        return await launch.create(control, self.api_key, self._limits, id, self._create_body())

    async def _launch_many(self, count: int) -> list[ReadyInstance]:
        if self.dummy_instance_ip or self._attach:
            raise EnvironmentError(
                "several instances need a gateway; a runtime, or an instance that exists, is one", self.env_name
            )
        body = self._create_body()
        return await self._at_gateway(
            lambda control: launch.create_many(control, self.api_key, self._limits, count, body)
        )

    async def _at_gateway(self, act: Callable[[Origin], Awaitable[T]]) -> T:
        if self._url:
            return await act(address.control_origin(self._url))
        with other_ways():
            try:
                return await act(await platform(self._settings, self._startup_timeout))
            except ConnectFailed:
                # It ended between our look and our request: because it was idle, say. Start it again.
                return await act(await platform(self._settings, self._startup_timeout))

    def _create_body(self) -> dict[str, Any]:
        url = self._url
        body = {
            "envName": str(self._ref),
            "datasource": found_by(url, self.datasource),
            "ttl": self.ttl,
            "environment_variables": forwarded(url, str(self._ref), self.environment_variables),
            "arguments": self.arguments,
            "owner": self.owner,
            "labels": self.labels,
            "mount_points": self.mount_points,
            "init_command": self.init_command,
            "resources": self.resources,
            "network": self.network,
            "model": self._model,
            "wait": self.wait,
            "self_check": None if self.self_check else False,
        }
        return {name: value for name, value in body.items() if value is not None}

    async def release(self) -> None:
        """Give the instance back. Failures are logged, not raised: the TTL ends what cannot be reached."""
        launched, self._launched = self._launched, None
        self._initialized = False
        if launched:
            await launched.release()

    async def destroy(self) -> None:
        """The same as `release`."""
        await self.release()

    async def wait_for_ready(self, timeout: float = 300.0) -> None:
        """Return when the instance answers; `initialize` waits for that already."""
        try:
            async with asyncio.timeout(timeout):
                await self.initialize()
        except TimeoutError:
            raise EnvironmentError(
                f"{self.env_name!r} was not ready within {timeout:g} s", self.env_name
            ) from None

    @property
    def instance_id(self) -> str | None:
        """The instance's id once it exists."""
        return self._instance.id if self._instance else None

    @property
    def mcp_url(self) -> str:
        """The instance as an MCP server, for any client of MCP. EnvironmentError where no URL reaches it."""
        if not self._launched:
            raise EnvironmentError(
                f"{self.env_name!r} has no instance yet; await initialize() first", self.env_name
            )
        return self._launched.mcp_url

    @property
    def _instance(self) -> Instance | None:
        return self._launched.instance if self._launched else None

    async def get_env_info(self) -> dict[str, Any]:
        """Name, instance id, status, ip and times."""
        await self.initialize()
        assert self._instance
        kept = ("status", "ip", "created_at", "updated_at")
        shown = {key: getattr(self._instance, key) for key in kept}
        return {"name": self.env_name, "instance_id": self._instance.id, **shown}

    # The instance from outside, through its gateway.

    async def renew(self, ttl: str) -> str:
        """Let the instance live for `ttl` ("1h") from now; says until when."""
        remote = await self._remote("renew")
        return (await remote.api.renew_instance(remote.id, ttl)).expires_at

    async def presign_url(self, port: int, expiration_time_in_minutes: float = 5) -> str:
        """A short-lived URL of a port inside the instance, where the engine can open one."""
        remote = await self._remote("presign_url")
        try:
            return await remote.api.presign_url(remote.id, port, expiration_time_in_minutes)
        except AEnvError as error:
            raise EnvironmentError(f"presign_url failed: {error.message}", self.env_name) from error

    async def logs(self, follow: bool = False) -> AsyncIterator[str]:
        """What the instance has printed, line by line; with `follow` also what comes, until it ends."""
        async with aclosing((await self._remote("logs")).logs(follow=follow)) as lines:
            async for line in lines:
                yield line

    async def exec(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: str | bytes = b""
    ) -> Finished:
        """Run a command beside the environment: a text in a shell, a list as it is. Any exit code is a result."""
        return await (await self._remote("exec")).exec(command, timeout=timeout, stdin=stdin)

    async def exec_stream(
        self, command: str | Sequence[str], timeout: float | None = None, stdin: str | bytes = b""
    ) -> AsyncIterator[RemoteOutput]:
        """The same, with each piece of output as it comes; the last item has the exit code. Leaving ends it."""
        remote = await self._remote("exec_stream")
        async with aclosing(remote.exec_stream(command, timeout=timeout, stdin=stdin)) as pieces:
            async for piece in pieces:
                yield piece

    async def upload(self, local: str | Path, remote: str) -> int:
        """Copy a file, or what is in a folder, to `remote` in the workspace; says how many files that were."""
        return await (await self._remote("upload")).upload(local, remote)

    async def download(self, remote: str, local: str | Path) -> int:
        """Copy a file, or what is in a folder, from the workspace; says how many files that were."""
        return await (await self._remote("download")).download(remote, local)

    async def list_files(self, path: str = "") -> list[dict[str, Any]]:
        """What is in a folder of the workspace: `[{"path", "kind", "size_bytes", "modified_at"}]`."""
        return await (await self._remote("list_files")).list_files(path)

    async def events(self) -> list[dict[str, Any]]:
        """What happened to the instance: `[{"at", "what", "detail"}]`."""
        return await (await self._remote("events")).events()

    async def history(self) -> list[dict[str, Any]]:
        """The last calls: `[{"kind", "name", "arguments", "started_at", "duration_ms", "ok", …}]`."""
        return await (await self._remote("history")).history()

    async def _remote(self, what: str) -> Remote:
        await self.initialize()
        assert self._launched
        if self.dummy_instance_ip:
            raise EnvironmentError(f"{what} failed: a runtime without a gateway cannot do that", self.env_name)
        from .remote import Remote  # only for these methods

        return Remote(self._launched.api, self._launched.instance.id)

    # Tools.

    async def list_tools(self) -> list[dict[str, Any]]:
        """The instance's tools, each under its full name `<environment>/<tool>`."""
        tools = await self._known_tools()
        return [{**tool, "name": f"{self.env_name}/{tool['name']}"} for tool in tools]

    async def openai_tools(self) -> list[dict[str, Any]]:
        """The tools for OpenAI's chat completions; `call_tool` understands their names."""
        return formats.openai(await self._known_tools())

    async def anthropic_tools(self) -> list[dict[str, Any]]:
        """The tools for Anthropic's messages; `call_tool` understands their names."""
        return formats.anthropic(await self._known_tools())

    async def list_anthropic_tools(self) -> list[dict[str, Any]]:
        """The same as `anthropic_tools`."""
        return await self.anthropic_tools()

    async def list_openai_tools(self) -> list[Any]:
        """The tools as `agents.FunctionTool`s, for the OpenAI Agents SDK (extra `agents`)."""
        return formats.openai_agents(await self._known_tools(), self.call_tool)

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        """Call a tool once; it is never repeated. A tool that fails gives a result with `is_error`.

        `tool_name` may be short, full (`my-env@1.0.0/search`) or as in `openai_tools`. `on_progress` is called
        with each `Progress` that a long tool reports.
        """
        session = await self._ready()
        name = await self._resolve(tool_name)
        params = {"name": name, "arguments": arguments or {}}
        self._breaker.check()
        try:
            result = await session.rpc("tools/call", params, timeout=timeout, on_progress=on_progress)
        except TimeoutError:
            self._breaker.failed()
            limit = self.timeout if timeout is None else timeout
            raise ToolTimeoutError(
                f"tool {name!r} gave no answer within {limit:g} s; it may have run", name, limit
            ) from None
        except NetworkError as error:
            self._breaker.failed()
            raise ToolError(f"tool {name!r}: {error}; it may have run, so it is not repeated", name) from error
        except mcp.RpcError as error:
            raise ToolError(f"tool {name!r}: {error.message}", name) from error
        self._breaker.succeeded()
        return from_mcp(result)

    async def stream(
        self, tool_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> AsyncIterator[Progress | ToolResult]:
        """Call a tool and yield each `Progress` as it comes; the last item is the `ToolResult`."""
        reports: asyncio.Queue[Progress | None] = asyncio.Queue()
        call = asyncio.ensure_future(self.call_tool(tool_name, arguments, timeout, reports.put_nowait))
        call.add_done_callback(lambda _: reports.put_nowait(None))
        try:
            while (report := await reports.get()) is not None:
                yield report
            yield await call
        finally:
            # Left early: the tool is stopped before the caller goes on.
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    @property
    def _consecutive_tool_errors(self) -> int:
        return self._breaker.failures

    async def _known_tools(self) -> list[dict[str, Any]]:
        session = await self._ready()
        if self._tools is None:
            try:
                self._tools = (await session.rpc("tools/list", {}))["tools"]
            except (mcp.RpcError, TimeoutError) as error:
                raise EnvironmentError(f"cannot list the tools of {self.env_name!r}: {error}") from error
            self._names.learn(self._tools)
        return self._tools

    async def _resolve(self, tool_name: str) -> str:
        # In direct mode the list is not known yet, and a call should not cost a request for it.
        if self._names.needs_list(tool_name):
            await self._known_tools()
        return self._names.resolve(tool_name)

    # Functions, rewards, health.

    async def list_functions(self) -> dict[str, Any]:
        """`{"total", "functions", "reward", "health"}`."""
        data: dict[str, Any] = await self._http("GET", "/functions/list")
        return data

    async def call_function(
        self, function_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """What the function returned. EnvironmentError when it raised."""
        return await self._http("POST", f"/functions/{function_name}", body=arguments or {}, timeout=timeout)

    async def call_reward(
        self, arguments: dict[str, Any] | None = None, timeout: float | None = None, name: str | None = None
    ) -> Any:
        """What the reward returned: the default one (the first), or the one called `name`.

        Raises NotJudged, with its `outcome` and `reason`, where the environment can give no number.
        """
        query = {"name": name} if name else None
        return await self._http(
            "POST", "/task/reward", query=query, body=arguments or {}, timeout=timeout, heard=self._hear
        )

    async def check_task(self, timeout: float | None = None) -> tuple[str, str] | None:
        """How the self-check of the task stands, and why; waits until it is made, and asks for no verdict.

        None where the environment has no self-check. Raises NotJudged where it cannot be made, or has failed.
        """
        only = [(wire.SELF_CHECK_HEADER, wire.SELF_CHECK_ONLY)]
        await self._http("POST", "/task/reward", body={}, headers=only, timeout=timeout, heard=self._hear)
        return self.checked

    def _hear(self, response: Response) -> None:
        status = response.header(wire.SELF_CHECK_HEADER.lower().encode())
        reason = response.header(wire.SELF_CHECK_REASON_HEADER.lower().encode())
        self.checked = (status, unquote(reason or "")) if status else None

    async def reset(self, seed: int | None = None, **options: Any) -> Any:
        """Start the environment over in place, where it registers a reset."""
        return await self._http("POST", "/task/reset", body={"seed": seed, "options": options})

    async def check_health(
        self, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """The whole answer: `{"success": …, "data": …}`."""
        answer: dict[str, Any] = await self._http("GET", "/health", query=arguments, timeout=timeout, whole=True)
        return answer

    async def _http(self, method: str, path: str, **options: Any) -> Any:
        session = await self._ready()
        try:
            return await session.http(method, path, **options)
        except NetworkError as error:
            raise EnvironmentError(f"{path}: {error}", self.env_name) from error

    async def _ready(self) -> Session:
        if not self.enable_data_plane:
            raise EnvironmentError(f"{self.env_name!r} was made with enable_data_plane=False", self.env_name)
        if not self._initialized:
            await self.initialize()
        assert self._launched
        return self._launched.session
