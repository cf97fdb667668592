"""Instances for tasks: made where the environment is, watched while they are played, and all given back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..base.addresses import Origin
from ..base.errors import AEnvError, InvalidRequest
from ..client.api import Api, SharedPool
from ..client.environment import Environment
from ..client.result import ToolResult
from ..client.session import OnProgress
from . import known_secrets
from .capture.endpoint import ModelAccess
from .faults import is_infrastructure
from .recorder import Recorder
from .task import Task
from .trajectory import AgentCallKind

if TYPE_CHECKING:
    from ..client.remote import Remote

VALIDATION = {"AENV_VALIDATION": "1"}
"""The variable with which `play_gold`, `task_form` and `list_cheats` answer."""
_MARGIN = 600.0  # seconds that an instance may live beyond what is done with it; then its gateway ends it
_RELEASES = 32  # instances that are given back at a time
_UNRECORDED = ("exec", "exec_stream", "upload", "presign_url")
"""Methods that change an instance, or may, and leave no call in the record."""
_OVER = "the rollout is over"
REFUSALS = 10_000  # calls after the end of a rollout that raise; code that makes more of them does not end by that
_QUEUE = "10m"  # how long a create waits when the gateway is full


@dataclass(frozen=True)
class InstanceDescription:
    """What the gateway says about an instance and its environment."""

    name: str
    version: str
    description: str = ""
    engine: str = "unknown"
    is_isolated: bool = False
    eval_only: bool = False

    @property
    def ref(self) -> str:
        """As the gateway calls it: an alias or a range is not a name that a result can be found by."""
        return f"{self.name}@{self.version}"

    @classmethod
    def read(cls, data: Mapping[str, Any], fallback: str) -> InstanceDescription:
        """From the reply to a create; `fallback` is the name where that does not say one."""
        env = data.get("env")
        env = env if isinstance(env, dict) else {}
        return cls(
            str(env.get("name") or fallback),
            str(env.get("version") or "unknown"),
            str(env.get("description") or ""),
            str(data.get("engine") or "unknown"),
            bool(data.get("isolation")),
            env.get("eval_only") is True,
        )


class WatchedEnvironment(Environment):
    """An environment that writes down the calls of its agent, and stops one that does not stop by itself."""

    steps: int = 0
    played: int | None = 0
    """Steps that the environment made by itself; None where it does not say how many."""
    recorder: Recorder | None = None
    max_calls: int | None = None
    broken: AEnvError | None = None
    """What the infrastructure did to a call, of which the agent may have made something else."""
    flooded: asyncio.Event | None = None
    """Set when the agent has made more than `max_calls`; none of those calls ends."""
    captured: ModelAccess | None = None
    """How the agent asks its model, where that is captured."""
    is_over: bool = False
    """Whether the agent has ended: what it left running may not change what is judged now."""
    refused: int = 0
    """Calls that came after that."""

    @classmethod
    def over(cls, env: Environment) -> WatchedEnvironment:
        """The same instance as `env`, whose owner releases it, watched from now on."""
        watched = cls.__new__(cls)
        watched.__dict__ = env.__dict__
        # It may have been played before.
        watched.steps, watched.played, watched.broken, watched.is_over = 0, 0, None, False
        return watched

    @property
    def model(self) -> ModelAccess:
        """How the agent asks its model: `url`, `key`, and the same as `variables` for programs."""
        if self.captured is None:
            raise InvalidRequest(
                "no model is captured for this agent; use Runner(capture=URL), or --capture of aenv eval"
            )
        return self.captured

    async def release(self) -> None:
        """Do nothing: an agent may write `async with env`, and what it leaves there is judged."""

    async def give_back(self) -> None:
        """End the instance."""
        await super().release()

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        self.steps += 1
        call = super().call_tool(tool_name, arguments, timeout, on_progress)
        return cast(ToolResult, await self._watched("tool", tool_name, arguments or {}, call))

    async def call_function(
        self, function_name: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        call = super().call_function(function_name, arguments, timeout)
        return await self._watched("function", function_name, arguments or {}, call)

    async def reset(self, seed: int | None = None, **options: Any) -> Any:
        return await self._watched("reset", "reset", {"seed": seed, **options}, super().reset(seed, **options))

    @property
    def proxy_headers(self) -> dict[str, str]:
        """What requests to `mcp_url` carry; calls that are made there are not recorded."""
        if self.recorder:
            self.recorder.unrecorded("mcp_url")
        return cast(dict[str, str], self.__dict__["proxy_headers"])

    @proxy_headers.setter
    def proxy_headers(self, value: dict[str, str]) -> None:
        self.__dict__["proxy_headers"] = value

    async def _remote(self, what: str) -> Remote:
        if self.is_over:
            await self._refused()
        if self.recorder and what in _UNRECORDED:
            self.recorder.unrecorded(what)
        return await super()._remote(what)

    async def _watched(
        self, kind: AgentCallKind, name: str, arguments: dict[str, Any], call: Coroutine[Any, Any, Any]
    ) -> Any:
        if self.is_over:
            call.close()
            await self._refused()
        recorder = self.recorder
        if recorder is None:
            return await call
        index = recorder.begin()
        if self.max_calls is not None and index > self.max_calls:
            call.close()
            await self._stopped()
        began = time.perf_counter()
        try:
            answer = await call
        except AEnvError as error:
            if self.recorder is recorder:
                recorder.call(index, time.perf_counter() - began, kind, name, arguments, error=error.message)
            if is_infrastructure(error):
                self.broken = error
            raise
        if self.recorder is recorder:  # what an agent left running when it ended is not of its rollout
            seconds = time.perf_counter() - began
            if kind == "tool":
                recorder.call(index, seconds, kind, name, arguments, result=answer)
            else:
                recorder.call(index, seconds, kind, name, arguments, value=answer)
        return answer

    async def _stopped(self) -> None:
        """Never ends: an agent that goes on after an error would go on calling."""
        if self.flooded:
            self.flooded.set()
        await asyncio.get_running_loop().create_future()

    async def _refused(self) -> NoReturn:
        """End what an agent left running. What goes on after every error must wait, or it would hold the loop."""
        self.refused += 1
        if self.refused > REFUSALS:
            await asyncio.get_running_loop().create_future()
        raise asyncio.CancelledError(_OVER)

    async def end_others(self, ids: Sequence[str]) -> None:
        """End instances by their ids, those that are still there: of a process that was killed, say."""

        async def end(control: Origin) -> None:
            async with Api(control, api_key=self.api_key, max_retries=0) as api:
                await asyncio.gather(*(api.delete_instance(id) for id in ids), return_exceptions=True)

        await self._at_gateway(end)

    async def known_tools(self) -> list[dict[str, Any]]:
        """The tools by their short names, as MCP describes them."""
        return await self._known_tools()

    @property
    def described(self) -> InstanceDescription:
        """What the gateway says about the instance and its environment."""
        return InstanceDescription.read(self._launched.instance.sent if self._launched else {}, self._ref.name)


@dataclass(frozen=True)
class InstanceSource:
    """Where instances are made, and what each of them is given."""

    name: str
    url: str | None = None
    """The gateway; None is the platform of this user."""
    api_key: str | None = None
    variables: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    """By name: a value, or the name of a secret that the gateway keeps (`{"secret": "NAME"}`)."""
    limit: float = 1800.0
    """Seconds for one episode, and for any call in it."""
    eval_only: bool = False
    self_check: bool = True
    """Whether rewards wait for the self-check of their task, where the environment has one."""
    digest: str | None = None
    model_url: str | None = None
    """A model that the environment may ask."""
    model_key: str | None = field(default=None, repr=False)

    def told_variables(self, task: Task) -> dict[str, str]:
        """What instances for `task` are given, as results carry it: without what is secret."""
        return known_secrets.told({**self.variables, **task.variables})

    def secrets(self, task: Task) -> set[str]:
        """What is in no line of a journal."""
        keys = {"MODEL_KEY": self.model_key or "", "API_KEY": self.api_key or ""}
        return known_secrets.values({**self.variables, **task.variables}) | known_secrets.values(keys)

    def environment(self, task: Task | None = None, *, validation: bool = False) -> WatchedEnvironment:
        """An instance to be, for `task`; with `validation` it plays its gold when asked to."""
        return WatchedEnvironment(
            self.name,
            datasource=task.datasource if task else "",
            ttl=f"{self.limit + _MARGIN:.0f}s",
            environment_variables={
                **self.variables,
                **(task.variables if task else {}),
                **(VALIDATION if validation else {}),
            },
            aenv_url=self.url,
            api_key=self.api_key,
            timeout=self.limit,
            runtime_url="",
            wait=_QUEUE,
            self_check=self.self_check,
            model_url=self.model_url,
            model_key=self.model_key,
        )


class TaskInstances:
    """Makes instances and gives them back, most of them while the next one is made; at its end none is left."""

    def __init__(self, place: InstanceSource) -> None:
        self.place = place
        self._held: dict[WatchedEnvironment, asyncio.Task[None] | None] = {}
        # A delete has seconds to be answered; thousands at once would all be too late.
        self._releases = asyncio.Semaphore(_RELEASES)

    async def __aenter__(self) -> TaskInstances:
        self._pool = (
            SharedPool.acquire()
        )  # kept, so that connections outlive the instances that they were made for
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Also those whose release was asked for and cancelled before it began.
        await asyncio.gather(*map(self._release, list(self._held)), return_exceptions=True)
        await asyncio.gather(*(task for task in self._held.values() if task), return_exceptions=True)
        await self._pool.release()

    @asynccontextmanager
    async def one(
        self, task: Task | None = None, *, validation: bool = False
    ) -> AsyncIterator[WatchedEnvironment]:
        """An instance for the time of the block. Leaving does not wait until it is gone."""
        env = self.place.environment(task, validation=validation)
        await env.initialize()
        self._held[env] = None
        try:
            yield env
        finally:
            releasing = asyncio.get_running_loop().create_task(self._release(env))
            self._held[env] = releasing
            releasing.add_done_callback(lambda done: None if done.cancelled() else self._held.pop(env, None))

    async def _release(self, env: WatchedEnvironment) -> None:
        async with self._releases:
            await env.give_back()
