"""Control groups of processes that wait in a stager to become instances: each is moved into its own ahead.

A move waits until every processor has passed through the scheduler, often some milliseconds; a create need not.
Not here: groups that are made ahead without a process (`isolation/cgroups/hierarchy.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass

from ...base.errors import AEnvError
from ...isolation.cgroups import Cgroups, ControlGroup, owners
from ..base import ResourceLimits

logger = logging.getLogger("aenv.engines.native")

_WAITING, _INSTANCE = "waiting", "instance"  # what the names of groups begin with
_CLEARED = 5.0  # seconds in which what was killed has ended, also on a busy host


@dataclass(frozen=True, eq=False)
class _Early:
    limits: ResourceLimits
    entered: asyncio.Future[ControlGroup | None]
    """Done when the process is in its group; None when it could not be moved there."""


class EarlyGroups:
    """Those of the processes that wait in one stager, by the stager's numbers."""

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, _Early] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._limits: ResourceLimits | None = None

    def expects(self, limits: ResourceLimits) -> bool:
        """Whether a process waits in a group with these limits. Those who wait from now on will."""
        self._limits = limits
        return any(early.limits == limits for early in self._waiting.values())

    def add(self, number: int, pid: int) -> None:
        """A process waits: move it in the background."""
        if self._limits and self._cgroups.can_rename:
            entered = self._loop.run_in_executor(None, self._enter, pid, self._limits)
            self._waiting[number] = _Early(self._limits, entered)

    async def take(self, number: int, limits: ResourceLimits) -> ControlGroup | None:
        """The group that a process is in which becomes an instance; None where it has none with these limits."""
        early = self._waiting.get(number)
        if early is None or early.limits != limits:
            return None
        group = await asyncio.shield(early.entered)  # who gives up leaves it here
        if group is None or self._waiting.pop(number, None) is None:
            return None
        return self._cgroups.rename(group, _new_name(_INSTANCE))

    def leave(self, number: int) -> None:
        """A process has ended, or is in another group now: remove the one that it had here, and what is in it."""
        if early := self._waiting.pop(number, None):
            task = self._loop.create_task(self._emptied(early))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """End all that wait; return when nothing is left of their groups."""
        for number in [*self._waiting]:
            self.leave(number)
        await asyncio.gather(*self._leaving)

    async def _emptied(self, early: _Early) -> None:
        if group := await early.entered:
            await self._loop.run_in_executor(None, cleared, group)

    def _enter(self, pid: int, limits: ResourceLimits) -> ControlGroup | None:
        group = None
        try:
            group = make(self._cgroups, limits, _WAITING)
            group.attach(pid)
        except (AEnvError, OSError) as error:  # the create that gets this process is told what is wrong
            if not isinstance(error, ProcessLookupError):
                logger.warning("a process that waits could not be moved to its control group: %s", error)
            if group:
                cleared(group)
            return None
        return group


def make(cgroups: Cgroups, limits: ResourceLimits, kind: str = _INSTANCE) -> ControlGroup:
    """A new group for an instance."""
    return cgroups.make(_new_name(kind), cpus=limits.cpus, memory_bytes=limits.memory_bytes, pids=limits.pids)


def _new_name(kind: str) -> str:
    return f"{kind}-{owners.own()}-{secrets.token_hex(8)}"


def cleared(group: ControlGroup) -> None:
    """End what is in a group, and remove it."""
    try:
        group.kill()
        group.remove(timeout=_CLEARED)
    except OSError as error:  # the next engine on this home finds it
        logger.warning("a control group could not be removed: %s", error)
