"""The http engine: instances are made by a server of others, which speaks the published engine contract.

    POST   {url}/aenvironment/instance          the environment, as JSON → an instance
    GET    {url}/aenvironment/instance          all instances
    GET    {url}/aenvironment/instance/{id}     one
    DELETE {url}/aenvironment/instance/{id}

Replies have the envelope `{"success", "code", "message", "data"}`. The server chooses the ids of its instances;
which of them is which of ours is written below the home. An instance serves on PORT of the address that the server
tells. What this contract cannot ask for is refused, or, for the network, told in `not_enforced`. The contract's
`PUT …/instance/action/warmup` is not used: it says neither what is warmed nor how many.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..base.addresses import Origin, parse_url
from ..base.errors import AEnvError, Conflict, InvalidRequest, NetworkError, StartFailed, Unavailable, Unsupported
from ..base.http1 import Pool
from ..base.supervision import to_the_end
from ..base.wire import timestamp
from .base import Address, InstanceSpec
from .containers.container_plan import PORT
from .endings import Endings
from .folder import InstanceFolder
from .instance_state import InstanceState

_POLL = 0.2  # seconds between questions whether an instance runs: the contract has no other way to learn it
_PATH = "/aenvironment/instance"
_MAX_REPLY_BYTES = 64 << 20
_REPLY_WITHIN = 30.0  # seconds, as the published gateway waits; an instance may take longer to run than to begin
_READY = 6  # the status of an environment that can be used
_OVER = ("Failed", "Terminated")

Ids = list[str]


class HttpEngine:
    """Makes instances with the server at `url`."""

    name = "http"
    isolation: tuple[str, ...] = ()

    def __init__(self, home: Path, url: str) -> None:
        self._root = home.expanduser().absolute() / "run" / "instances"
        self.url = url
        self._origin, target = parse_url(url)
        self._path = target.rstrip("/") + _PATH
        self._pool = Pool()
        self._ending = Endings()
        self.summary = f"what the engine at {url} isolates"

    async def __aenter__(self) -> HttpEngine:
        """Unavailable, with what to do, when no server answers there."""
        await self._ask("GET", "")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.close()

    async def create(self, spec: InstanceSpec) -> Address:
        _refuse(spec)
        folder = InstanceFolder(self._root, spec.id)
        try:
            folder.make(workspace=False)
        except FileExistsError:
            raise Conflict(f"instance {spec.id!r} exists already") from None
        try:
            async with asyncio.timeout(spec.start_timeout):
                return await self._start(spec, folder)
        except TimeoutError:
            await to_the_end(self._end(spec.id))
            what = f"the instance of {spec.environment!r}"
            raise StartFailed(f"{what} was not ready within {spec.start_timeout:g} s") from None
        except BaseException:
            await to_the_end(self._end(spec.id))
            raise

    async def _begun(self, spec: InstanceSpec, folder: InstanceFolder) -> dict[str, Any]:
        """What the server says of the instance that it begins; its id is written down."""
        data = await self._ask("POST", "", environment(spec))
        if not isinstance(data, dict) or not data.get("id"):
            raise StartFailed(f"the engine at {self.url} answered a create without the id of an instance")
        folder.write_state(InstanceState(environment=spec.environment, root=str(data["id"])))
        return data

    async def _start(self, spec: InstanceSpec, folder: InstanceFolder) -> Address:
        what = f"the instance of {spec.environment!r}"
        # Not to be cut off half-way: an instance whose id is not written down would have no owner.
        data = await to_the_end(self._begun(spec, folder))
        while data.get("status") != "Running" or not data.get("ip"):
            if data.get("status") in _OVER:
                raise StartFailed(f"{what} {data['status'].lower()}: {data.get('message') or 'without a reason'}")
            await asyncio.sleep(_POLL)
            if spec.id in self._ending or not folder.exists():
                raise StartFailed(f"{what} was destroyed while it started")
            data = await self._ask("GET", f"/{_quoted(str(data['id']))}") or {}
        origin = _origin(str(data["ip"]))
        tools = await self._tools(origin)
        if spec.id in self._ending or not folder.exists():
            raise StartFailed(f"{what} was destroyed while it started")
        not_enforced = _not_enforced(spec)
        folder.write_state(InstanceState(socket=str(data["ip"]), pid=0, tools=tools, not_enforced=not_enforced))
        return Address(origin, 0, tools, f"that of the engine at {self.url}", not_enforced)

    async def _tools(self, origin: Origin) -> list[dict[str, Any]]:
        """What the instance offers; asked again until it answers: the server tells only an address."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        headers = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")]
        while True:
            with contextlib.suppress(NetworkError, ValueError, KeyError, TypeError):
                response = await self._pool.request(origin, "POST", "/mcp", headers, body)
                text = (await response.read(_MAX_REPLY_BYTES)).decode()
                line = next((line[5:] for line in text.splitlines() if line.startswith("data:")), text)
                tools: list[dict[str, Any]] = json.loads(line)["result"]["tools"]
                return tools
            await asyncio.sleep(_POLL)

    async def destroy(self, id: str) -> None:
        with contextlib.suppress(InvalidRequest):  # no instance has such an id
            await self._end(id)

    async def _end(self, id: str) -> None:
        await self._ending.end(id, partial(self._clear, InstanceFolder(self._root, id)))

    async def _clear(self, folder: InstanceFolder) -> None:
        if theirs := folder.read_state().root:
            await self._ask("DELETE", f"/{_quoted(theirs)}", missing_is_fine=True)
        await asyncio.to_thread(folder.remove)

    async def running(self) -> dict[str, Address]:
        """Those of ours that the server says run."""
        listed = await self._ask("GET", "") or []
        living = {str(one.get("id")) for one in listed if one.get("status") == "Running"}
        found = {}
        for path in sorted(self._root.glob("*/")):
            with contextlib.suppress(InvalidRequest):
                state = InstanceFolder(self._root, path.name).read_state()
                if state.root in living and state.tools is not None and state.socket:
                    root = f"that of the engine at {self.url}"
                    found[path.name] = Address(
                        _origin(state.socket), 0, state.tools, root, state.not_enforced or ()
                    )
        return found

    async def leftovers(self) -> Ids:
        running = await self.running()
        return sorted(path.name for path in self._root.glob("*/") if path.name not in running)

    async def _ask(self, method: str, path: str, body: Any = None, *, missing_is_fine: bool = False) -> Any:
        """The data of a reply. StartFailed tells why the server refuses; Unavailable that it is silent."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = [("content-type", "application/json")] if body is not None else []
        try:
            async with asyncio.timeout(_REPLY_WITHIN):
                response = await self._pool.request(self._origin, method, f"{self._path}{path}", headers, content)
                text = await response.read(_MAX_REPLY_BYTES)
        except TimeoutError:
            raise Unavailable(f"the engine at {self.url} gave no reply within {_REPLY_WITHIN:g} s") from None
        except NetworkError as error:
            raise Unavailable(f"no engine answers at {self.url}: {error.message}; check --engine-url") from error
        if missing_is_fine and response.status == 404:
            return None
        try:
            reply = json.loads(text)
            if response.status < 400 and reply["success"]:
                return reply.get("data")
            said = str(reply.get("message") or reply.get("errorMessage") or reply.get("error"))
        except (ValueError, KeyError, TypeError, AttributeError):
            said = text.decode(errors="replace").strip()[:500] or "nothing"
        if missing_is_fine and "not found" in said:
            return None
        raise _refused(self.url, response.status, said)


def environment(spec: InstanceSpec) -> dict[str, Any]:
    """The body of a create: the environment with its keys in both of the published spellings."""
    name, _, version = spec.environment.partition("@")
    limits = {
        "cpu": f"{round(spec.limits.cpus * 1000)}m" if spec.limits.cpus else None,
        "memory": str(spec.limits.memory_bytes) if spec.limits.memory_bytes else None,
        "ephemeralStorage": str(spec.limits.storage_bytes) if spec.limits.storage_bytes else None,
        "gpu": spec.limits.gpus,
    }
    wanted = {key: value for key, value in limits.items() if value}
    variables = {**spec.environment_variables, **_own_variables(spec)}
    deploy = {
        **wanted,
        # Without it the published controller ignores cpu and memory.
        **({"resource": "autoscale"} if wanted else {}),
        **({"ttl": f"{spec.ttl:g}s"} if spec.ttl else {}),
        **({"secondImageName": spec.sidecar} if isinstance(spec.sidecar, str) and spec.sidecar else {}),
        "environment_variables": variables,
        "environmentVariables": variables,
        "arguments": list(spec.arguments),
        "labels": dict(spec.labels),
        "owner": spec.owner,
        "podTemplate": spec.pod_template,
    }
    artifacts = [{"id": "", "type": "image", "content": spec.image}] if spec.image else []
    both = {"code_url": "", "build_config": {}, "test_config": {}, "deploy_config": deploy}
    # Servers of the published kind parse both times, and refuse an empty one.
    now = timestamp()
    both |= {"created_at": now, "updated_at": now}
    return {
        "id": f"{name}-{version}",
        "name": name,
        "description": "",
        "version": version,
        "tags": [],
        "status": _READY,
        "artifacts": artifacts,
        **both,
        **{_camel(key): value for key, value in both.items()},
    }


def _own_variables(spec: InstanceSpec) -> dict[str, str]:
    """What a runtime of ours knows of itself; it also keeps to the limit of its calls."""
    own = {"AENV_INSTANCE_ID": spec.id, "AENV_ENVIRONMENT": spec.environment}
    return own if spec.call_timeout is None else {**own, "AENV_CALL_TIMEOUT": f"{spec.call_timeout:g}"}


def _not_enforced(spec: InstanceSpec) -> tuple[str, ...]:
    asked = {
        "pids": spec.limits.pids is not None,
        "open_files": spec.limits.open_files is not None,
        "network": spec.network.kind != "full",
    }
    return tuple(
        f"{what}: the engine's contract has no word for it" for what, is_asked in asked.items() if is_asked
    )


def _refuse(spec: InstanceSpec) -> None:
    if not spec.image:
        raise Unsupported(
            f"the http engine makes instances of images only, and {spec.environment!r} has none; "
            "run 'aenv build --push'"
        )
    asked = {
        "an isolation of its own": bool(spec.isolation),
        "a model relay": spec.model is not None,
        "data of the gateway": bool(spec.data or spec.folders),
        "storage": spec.storage is not None,
    }
    if missing := [what for what, is_asked in asked.items() if is_asked]:
        raise Unsupported(f"the http engine cannot give an instance {', '.join(missing)}")


def _refused(url: str, status: int, said: str) -> AEnvError:
    return StartFailed(f"the engine at {url} refused with status {status}: {said}")


def _origin(ip: str) -> Origin:
    """From the address that the server tells: a host, or a host with a port."""
    return parse_url(f"http://{ip}", http_port=PORT)[0]


def _quoted(id: str) -> str:
    return quote(id, safe="")


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.title() for word in rest)
