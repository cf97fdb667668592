"""An engine that freezes by signals; for tests of who freezes when."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from aenv.base.errors import NotFound
from aenv.engines.base import Address, InstanceSpec
from aenv.engines.process import ProcessEngine


class FrostEngine(ProcessEngine):
    """The process engine with `Freeze`. `did` tells, in order, what was asked of it and has been done."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.pids: dict[str, int] = {}
        self.did: list[str] = []
        self.changed = asyncio.Condition()
        self.thaws_fail = False

    async def create(self, spec: InstanceSpec) -> Address:
        address = await super().create(spec)
        self.pids[spec.id] = address.pid
        return address

    async def destroy(self, id: str) -> None:
        if pid := self.pids.pop(id, None):  # SIGTERM would wait for a process that is stopped
            os.kill(pid, signal.SIGCONT)
        await super().destroy(id)
        await self._tell("destroy")

    async def freeze(self, id: str) -> None:
        os.kill(self._pid(id), signal.SIGSTOP)
        # Until it has stopped: the signal alone does not wait for that.
        await asyncio.to_thread(os.waitid, os.P_PID, self._pid(id), os.WSTOPPED | os.WNOWAIT)
        await self._tell("freeze")

    async def thaw(self, id: str) -> None:
        if self.thaws_fail:
            raise OSError("the freezer is broken")
        os.kill(self._pid(id), signal.SIGCONT)
        await self._tell("thaw")

    async def until(self, *did: str) -> None:
        """Return when it has done exactly this since the last time."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.did) >= len(did))
        assert tuple(self.did) == did
        self.did.clear()

    def _pid(self, id: str) -> int:
        if id not in self.pids:
            raise NotFound(f"instance {id!r} not found")
        return self.pids[id]

    async def _tell(self, what: str) -> None:
        self.did.append(what)
        async with self.changed:
            self.changed.notify_all()
