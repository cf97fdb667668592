"""The host's memory: how much there is, how much is left, and when it runs short."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_PRESSURE = "/proc/pressure/memory"
_TRIGGER = b"some 200000 2000000"  # µs of waiting for memory in a window; ordinary users may have one of 2 s


def total_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_bytes() -> int:
    """What can be had without swapping, as the kernel estimates it."""
    for line in _MEMINFO.read_bytes().splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError(f"{_MEMINFO} does not say how much memory is available")


@contextlib.contextmanager
def pressure() -> Iterator[asyncio.Event]:
    """An event that is set, again and again, while processes wait for memory; never where no kernel tells."""
    pressed, loop = asyncio.Event(), asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no such file, not for us, or the user has no watches left
            descriptor = os.open(_PRESSURE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            os.write(descriptor, _TRIGGER)
            # The kernel tells by "urgent" alone, which event loops do not wait for: a poll in the poll does.
            poll = stack.enter_context(select.epoll())
            poll.register(descriptor, select.EPOLLPRI | select.EPOLLET)  # once for each time that it is told

            def told() -> None:
                poll.poll(0)  # takes the news, so that it is told once
                pressed.set()

            loop.add_reader(poll.fileno(), told)
            stack.callback(loop.remove_reader, poll.fileno())
        yield pressed
