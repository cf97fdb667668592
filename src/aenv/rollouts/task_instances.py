"""Instances for tasks: made where the environment is, watched while they are played, and all given back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..client.api import SharedPool
from ..client.environment import Environment
from ..client.result import ToolResult
from ..client.session import OnProgress
from .task import Task

VALIDATION = {"AENV_VALIDATION": "1"}
"""The variable with which `play_gold` and `list_cheats` answer."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_MARGIN = 600.0  # seconds that an instance may live beyond what is done with it; then its gateway ends it
_QUEUE = "10m"  # how long a create waits when the gateway is full


class WatchedEnvironment(Environment):
    """An environment that remembers the calls of its tools, in the order in which they ended."""

    steps: int = 0
    played: int | None = 0
    """Steps that the environment made by itself; None where it does not say how many."""
    calls: list[dict[str, Any]]

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult:
        self.steps += 1
        result = await super().call_tool(tool_name, arguments, timeout, on_progress)
        self.calls.append(
            {
                "tool": tool_name,
                "arguments": arguments or {},
                "content": result.content,
                "is_error": result.is_error,
            }
        )
        return result

    @property
    def described(self) -> Mapping[str, Any]:
        """What the gateway says about the instance."""
        return self._launched.instance.data if self._launched else {}

    @property
    def of(self) -> Mapping[str, Any]:
        """What the gateway says about the environment."""
        env = self.described.get("env")
        return env if isinstance(env, dict) else {}


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

    def told_variables(self, task: Task) -> dict[str, str]:
        """What instances for `task` are given, as results carry it: without what is secret by its name."""
        given = {
            name: value if isinstance(value, str) and not _SECRET.search(name) else "***"
            for name, value in self.variables.items()
        }
        return {**given, **task.variables}

    def environment(self, task: Task | None = None, *, validation: bool = False) -> WatchedEnvironment:
        """An instance to be, for `task`; with `validation` it plays its gold when asked to."""
        env = WatchedEnvironment(
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
        )
        env.calls = []
        return env


class TaskInstances:
    """Makes instances and gives them back, most of them while the next one is made; at its end none is left."""

    def __init__(self, place: InstanceSource) -> None:
        self.place = place
        self._held: dict[WatchedEnvironment, asyncio.Task[None] | None] = {}

    async def __aenter__(self) -> TaskInstances:
        self._pool = (
            SharedPool.acquire()
        )  # kept, so that connections outlive the instances that they were made for
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Also those whose release was asked for and cancelled before it began.
        await asyncio.gather(*(env.release() for env in list(self._held)), return_exceptions=True)
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
            releasing = asyncio.get_running_loop().create_task(env.release())
            self._held[env] = releasing
            releasing.add_done_callback(lambda done: None if done.cancelled() else self._held.pop(env, None))
