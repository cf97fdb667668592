"""A group of processes that shares limits. Not here: making one (`hierarchy.py`)."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from .control_files import SETTLE, Hierarchy, field, read, write

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAUSE = 0.0005
_PASSES = 20  # over processes that fork while they are ended


@dataclass(frozen=True)
class GroupUsage:
    """What a group uses now; `cpu_seconds` since it began."""

    cpu_seconds: float
    memory_bytes: int
    processes: int


class ControlGroup:
    """One group. All that it does is synchronous; errors of the kernel come as OSError."""

    def __init__(
        self,
        name: str,
        enforcing: Sequence[Hierarchy],
        freezer: Hierarchy | None,
        strange: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`strange`: the folder where it would be -> where it is, made by a process of another cgroup."""
        self.name = name
        self._enforcing = enforcing
        self._freezer = freezer
        self._strange = strange.values()
        self._folders = [strange.get(folder, folder) for folder in (each.parent + name for each in enforcing)]
        self._frozen_in = strange.get(freezer.parent + name, freezer.parent + name) if freezer else None
        self._is_lazy = self._frozen_in is not None and self._frozen_in not in self._folders

    @property
    def folders(self) -> list[str]:
        """In every hierarchy, whether it exists there now or not."""
        lazy = [self._frozen_in] if self._is_lazy and self._frozen_in else []
        return [*self._folders, *lazy]

    def attach(self, pid: int) -> None:
        """Move a process in; its later children follow. Raises ProcessLookupError when it is no more."""
        if pid < 1:  # what the kernel names a process that has been collected
            raise ProcessLookupError(errno.ESRCH, "the process has ended", self.name)
        for folder in self._folders:
            write(f"{folder}/cgroup.procs", str(pid))
        if not self._folders and self._frozen_in:
            # Nothing else knows which processes belong to the group.
            os.makedirs(self._frozen_in, exist_ok=True)
            write(f"{self._frozen_in}/cgroup.procs", str(pid))

    def allow(self, *, memory_bytes: int, pids: int) -> None:
        for hierarchy, folder in zip(self._enforcing, self._folders, strict=True):
            hierarchy.allow(folder, memory_bytes, pids)

    def processes(self) -> list[int]:
        """The pids in the group, of those that we can see."""
        for folder in self.folders:
            with suppress(FileNotFoundError):  # removed; or not frozen yet, when it is in no other
                return [pid for pid in map(int, read(f"{folder}/cgroup.procs").split()) if pid]
        return []

    def freeze(self) -> None:
        """Return when no process of the group runs. Raises OSError without a freezer, or if one does not stop."""
        if self._freezer is None or self._frozen_in is None:
            raise OSError(errno.EOPNOTSUPP, "no cgroup here can freeze processes", self.name)
        if self._is_lazy:
            os.makedirs(self._frozen_in, exist_ok=True)
        file, frozen, thawed = self._freezer.switch
        write(f"{self._frozen_in}/{file}", frozen)
        try:
            if self._is_lazy:
                self._gather(self._frozen_in)
            deadline = time.monotonic() + SETTLE
            while not self._freezer.is_frozen(self._frozen_in):
                if time.monotonic() > deadline:
                    raise OSError(errno.EBUSY, "a process does not stop for the freezer", self._frozen_in)
                time.sleep(_PAUSE)
        except BaseException:
            write(f"{self._frozen_in}/{file}", thawed)
            raise

    def thaw(self) -> None:
        """Let it run on; nothing happens when it is not frozen."""
        if self._freezer is not None and self._frozen_in is not None:
            file, _, thawed = self._freezer.switch
            with suppress(FileNotFoundError):  # never frozen
                write(f"{self._frozen_in}/{file}", thawed)

    def used(self) -> GroupUsage:
        pids = self.processes()
        cpu_seconds: float | None = None
        memory_bytes: int | None = None
        for hierarchy, folder in zip(self._enforcing, self._folders, strict=True):
            with suppress(FileNotFoundError):  # removed meanwhile: what is left counts
                cpu_seconds = cpu_seconds or hierarchy.cpu_seconds(folder)
                memory_bytes = memory_bytes or hierarchy.memory_bytes(folder)
        if cpu_seconds is None:
            cpu_seconds = sum(map(_cpu_seconds, pids))
        if memory_bytes is None:
            memory_bytes = sum(map(_memory_bytes, pids))
        return GroupUsage(cpu_seconds, memory_bytes, len(pids))

    def oom_kills(self) -> int:
        """How many processes the memory limit has ended."""
        for hierarchy, folder in zip(self._enforcing, self._folders, strict=True):
            if "memory" in hierarchy.controllers:
                file = "memory.oom_control" if hierarchy.version == 1 else "memory.events"
                return field(read(f"{folder}/{file}"), "oom_kill")
        return 0

    def denied(self) -> str | None:
        """What a limit above the group's own has refused to it: "processes" or "memory"; None when nothing."""
        for hierarchy, folder in zip(self._enforcing, self._folders, strict=True):
            with suppress(OSError):  # removed, or an older kernel
                if "pids" in hierarchy.controllers and hierarchy.has_denied_pids(folder):
                    return "processes"
                if "memory" in hierarchy.controllers and self.oom_kills() and not hierarchy.has_filled(folder):
                    return "memory"
        return None

    def kill(self) -> None:
        """End every process of the group, frozen or not; `remove` waits for them.

        It may be there in some hierarchies only: what made or removed it may have been killed half-way.
        """
        for hierarchy, folder in zip(self._enforcing, self._folders, strict=True):
            if hierarchy.version == 2 and os.path.exists(f"{folder}/cgroup.kill"):
                write(f"{folder}/cgroup.kill", "1")
                return
            if hierarchy.version == 1 and "pids" in hierarchy.controllers:
                with suppress(FileNotFoundError):
                    # Or one that forks and ends, again and again, gets away.
                    write(f"{folder}/pids.max", "0")
        # Frozen first where that can be, for the same reason; on version 1 they die when thawed.
        if self._freezer is not None and self.processes():
            with suppress(OSError):  # one that will not stop does not spare the others
                self.freeze()
        for _ in range(_PASSES):
            for pid in (pids := self.processes()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not pids or self._freezer is not None:
                break
        self.thaw()

    def remove(self, *, timeout: float = SETTLE) -> None:
        """Remove it everywhere, once its processes are gone; raises OSError (EBUSY) that names those that stay.

        Nothing happens when it is removed already. A frozen group is thawed: on version 1 its processes cannot die
        before.
        """
        self.thaw()
        deadline = time.monotonic() + timeout
        left = [folder for folder in self.folders if not _removed(folder, deadline)]
        if left:
            pids = ", ".join(map(str, self.processes())) or "none that we can see"
            raise OSError(errno.EBUSY, f"the cgroup still holds processes: {pids}", left[0])
        for folder in self._strange:
            with suppress(OSError):  # the folder of all groups there, when this was the last
                os.rmdir(os.path.dirname(folder))

    def _gather(self, folder: str) -> None:
        """Move all in. A process that is moved stops, so only the others can fork, and they get fewer."""
        inside: set[int] = set()
        deadline = time.monotonic() + SETTLE
        while new := [pid for pid in self.processes() if pid not in inside]:
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, "processes begin faster than they can be frozen", folder)
            inside |= {int(pid) for pid in read(f"{folder}/cgroup.procs").split()}
            for pid in new:
                if pid not in inside:
                    with suppress(ProcessLookupError):
                        write(f"{folder}/cgroup.procs", str(pid))
                    inside.add(pid)


def used_by(pids: Iterable[int]) -> GroupUsage:
    """What these processes use, where no cgroup counts it: ended children only as far as they were waited for."""
    pids = list(pids)
    return GroupUsage(sum(map(_cpu_seconds, pids)), sum(map(_memory_bytes, pids)), len(pids))


def _cpu_seconds(pid: int) -> float:
    try:
        # After the name, which may hold anything: utime, stime and those of waited-for children.
        words = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, words[11:15])) / _TICKS


def _memory_bytes(pid: int) -> int:
    try:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except PermissionError:
        return int(read(f"/proc/{pid}/statm").split()[1]) * _PAGE  # more than its own part, but what we may see
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _removed(folder: str, deadline: float) -> bool:
    """Whether it is gone at last. Processes that die keep it busy for a moment."""
    while True:
        try:
            os.rmdir(folder)
            return True
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        if (rest := deadline - time.monotonic()) <= 0:
            return False
        _wait_for_one(folder, rest)


def _wait_for_one(folder: str, timeout: float) -> None:
    """Until a process of the group ends, as the kernel tells. One that is not listed any more is gone at once."""
    try:
        pids = read(f"{folder}/cgroup.procs").split()
    except FileNotFoundError:
        return  # removed by another
    for pid in pids:
        try:
            descriptor = os.pidfd_open(int(pid)) if pid != "0" else None
        except ProcessLookupError:
            continue
        if descriptor is not None:
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll(timeout * 1000)
            finally:
                os.close(descriptor)
            return
    time.sleep(min(_PAUSE, timeout))
