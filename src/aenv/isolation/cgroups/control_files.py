"""The files of a cgroup: what versions 1 and 2 call them, what they take and what they tell."""

from __future__ import annotations

import errno
import os
import select

PERIOD_US = 100_000
SETTLE = 1.0  # seconds for what the kernel finishes soon: the end of dying processes, the last step of freezing

_CHARGED_AT_ONCE = 64 * os.sysconf("SC_PAGE_SIZE")  # what the kernel takes ahead for a processor
_SOCKETS_PART = 4  # of the memory; above it each socket still has a few pages, and there may be many

Limits = tuple[float | None, int | None, int | None]
"""Cpus, bytes of memory, processes; None means no limit."""


class Hierarchy:
    """One hierarchy: the groups are folders of `parent`."""

    def __init__(self, version: int, controllers: tuple[str, ...], parent: str) -> None:
        self.version = version
        self.controllers = controllers
        self.parent = f"{parent}/"
        self.switch = ("freezer.state", "FROZEN", "THAWED") if version == 1 else ("cgroup.freeze", "1", "0")
        # Every group has the files that their common folder has.
        self._files = frozenset(os.listdir(self.parent))
        self._written: dict[Limits, list[tuple[str, str]]] = {}

    def limit(self, folder: str, limits: Limits) -> None:
        settings = self._written.get(limits)
        if settings is None:
            settings = self._written.setdefault(limits, self._settings(limits))
        for file, value in settings:
            try:
                write(f"{folder}/{file}", value)
            except OSError as error:
                # Version 1 refuses more than what a group above has: that one limits us then.
                if error.errno != errno.EINVAL or file != "cpu.cfs_quota_us":
                    raise

    def _settings(self, limits: Limits) -> list[tuple[str, str]]:
        cpus, memory_bytes, pids = limits
        settings: list[tuple[str, str]] = []
        if cpus is not None and "cpu" in self.controllers:
            quota = max(1000, round(cpus * PERIOD_US))
            if self.version == 1:
                settings += [("cpu.shares", str(max(2, round(1024 * cpus)))), ("cpu.cfs_quota_us", str(quota))]
            else:
                weight = min(10_000, max(1, round(100 * cpus)))
                settings += [("cpu.weight", str(weight)), ("cpu.max", f"{quota} {PERIOD_US}")]
        if memory_bytes is not None and "memory" in self.controllers:
            if self.version == 1:  # in this order: memory with swap is never less than memory
                files = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
                settings += [(file, str(memory_bytes)) for file in files]
                # What waits in TCP and UDP sockets is not in the others, as it is in version 2.
                settings.append(("memory.kmem.tcp.limit_in_bytes", str(memory_bytes // _SOCKETS_PART)))
            else:
                settings += [
                    ("memory.max", str(memory_bytes)),
                    ("memory.swap.max", "0"),
                    ("memory.oom.group", "1"),
                ]
        if pids is not None and "pids" in self.controllers:
            settings.append(("pids.max", str(pids)))
        return [(file, value) for file, value in settings if file in self._files]

    def allow(self, folder: str, memory_bytes: int, pids: int) -> None:
        for file, value in reversed(self._settings((None, memory_bytes, pids))):  # memory with swap before memory
            write(f"{folder}/{file}", value)

    def has_denied_pids(self, folder: str) -> bool:
        """Whether a group above has refused a process to this one, which was below its own limit."""
        if self.version == 1:
            most = read(f"{folder}/pids.max").strip()
            is_full = most != "max" and int(read(f"{folder}/pids.peak")) >= int(most)
            return not is_full and field(read(f"{folder}/pids.events"), "max") > 0
        above = os.path.dirname(folder.rstrip("/"))
        while os.path.exists(f"{above}/pids.max"):
            if int(read(f"{above}/pids.current")) >= float(read(f"{above}/pids.max").replace("max", "inf")):
                return True
            above = os.path.dirname(above)
        return False

    def has_filled(self, folder: str) -> bool:
        """Whether the memory limit of the group itself was ever reached."""
        if self.version == 1:
            # Not memory.failcnt: newer kernels (seen with 6.18) do not count there what the limit has refused.
            most = int(read(f"{folder}/memory.limit_in_bytes"))
            return int(read(f"{folder}/memory.max_usage_in_bytes")) + _CHARGED_AT_ONCE >= most
        return field(read(f"{folder}/memory.events"), "oom") > 0

    def is_frozen(self, folder: str) -> bool:
        if self.version == 1:
            return read(f"{folder}/freezer.state").strip() == "FROZEN"
        with open(f"{folder}/cgroup.events") as file:
            # The kernel tells of a change by POLLPRI.
            events = select.poll()
            events.register(file, select.POLLPRI)
            if field(file.read(), "frozen"):
                return True
            events.poll(SETTLE * 1000)
            file.seek(0)
            return bool(field(file.read(), "frozen"))

    def cpu_seconds(self, folder: str) -> float | None:
        """None when the kernel does not count it here."""
        if self.version == 2:
            return field(read(f"{folder}/cpu.stat"), "usage_usec") / 1e6
        if "cpuacct.usage" in self._files:
            return int(read(f"{folder}/cpuacct.usage")) / 1e9
        return None

    def memory_bytes(self, folder: str) -> int | None:
        if "memory" not in self.controllers:
            return None
        return int(read(f"{folder}/{'memory.usage_in_bytes' if self.version == 1 else 'memory.current'}"))


def write(path: str, value: str) -> None:
    """One write, as the kernel wants it; the error names the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(descriptor)


def read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts).decode()
    except OSError as error:
        raise _named(error, path) from None
    finally:
        os.close(descriptor)


def field(text: str, name: str) -> int:
    """A number of a file with a "name number" on each line; 0 when it is not there."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _named(error: OSError, path: str) -> OSError:
    """With the file's name; ENODEV is what the kernel says when the group went after the file was opened."""
    number = errno.ENOENT if error.errno == errno.ENODEV else error.errno
    return OSError(number, error.strerror, path)
