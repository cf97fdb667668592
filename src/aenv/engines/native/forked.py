"""Forks: the processes that zygotes have forked, as the engine holds them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from .. import proc

if TYPE_CHECKING:
    from .zygotes import Zygote

_FACTS_BYTES = 4096  # more than the few lines of a pidfd


@dataclass(frozen=True)
class Handed:
    """What the stager hands over with a fork; for its holder to close."""

    pidfd: int
    log: int
    listeners: Mapping[str, socket.socket]

    def close(self) -> None:
        os.close(self.pidfd)
        os.close(self.log)
        for listener in self.listeners.values():
            listener.close()


class ForkedProcess:
    """A process that a zygote has forked: a spare instance, in its namespaces or about to be."""

    def __init__(
        self,
        handed: Handed,
        zygote: Zygote,
        number: int,
        channel: socket.socket,
        ended: asyncio.Future[int | None],
    ) -> None:
        pidfd = handed.pidfd
        self.pid = pid_of(pidfd)
        self.zygote = zygote
        self._number = number
        self.owner = zygote.owner
        """The id on the host of the user who is root inside."""
        self.is_loaded = zygote.is_loaded
        """Whether it had its environment loaded when it was forked."""
        self.log = handed.log
        self.listeners = dict(handed.listeners)
        self.channel = channel
        self.status = ended
        """How it ended, as wait(2) tells; None when the stager cannot."""
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._pidfd = pidfd
        # One reader for all who want to know: a second one would take the place of the first.
        loop.add_reader(pidfd, self._close)

    @cached_property
    def start_time(self) -> int | None:
        """With its pid, this tells it from every other process; None when it has ended."""
        return proc.start_time(self.pid)

    @property
    def is_over(self) -> bool:
        """Also when the event loop has not noticed it yet."""
        if self._over.done():
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    async def over(self) -> None:
        """Return when the process, and with it every other of its pid namespace, has ended."""
        await asyncio.shield(self._over)

    def then(self, call: Callable[[], None]) -> None:
        """Call this when it is over."""
        self._over.add_done_callback(lambda _: call())

    def keep(self) -> None:
        """It is written down, and lives on when this process has ended."""
        self.zygote.keep(self._number)

    def kill(self) -> None:
        if not self._over.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._over.set_result(None)


def pid_of(pidfd: int) -> int:
    """The number of a process in our own pid namespace; -1 when it has ended."""
    file = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(file, _FACTS_BYTES).split(b"\n")
    finally:
        os.close(file)
    return next((int(line[4:]) for line in lines if line.startswith(b"Pid:")), -1)
