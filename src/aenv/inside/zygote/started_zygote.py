"""The zygote as the stager knows it: which process it is, what it has said, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import dataclass, field

from ...base import settings
from ...isolation.sandbox import protocol
from ...isolation.sandbox.orders import StageTask, task_file
from .senders import SO_PASSCRED

_TAIL_BYTES = 2048


@dataclass
class StartedZygote:
    """One that was started, and has perhaps ended."""

    pid: int
    socket: socket.socket
    printed: int
    """A file in memory with what it and the author's code have printed."""
    forker: int = 0
    """The child of it that forks."""
    said: set[str] = field(default_factory=set)
    """What it may say once."""
    status: int | None = None
    """As wait(2) tells, once it has ended."""

    def once(self, what: str) -> None:
        if what in self.said:
            raise protocol.Broken(f"{what} a second time")
        self.said.add(what)

    def end(self) -> str:
        """End it; how it has ended, if it was over already."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]
        status = self.status
        return (
            f"by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"with code {os.WEXITSTATUS(status)}"
        )

    def tail(self) -> str:
        size = os.fstat(self.printed).st_size
        return os.pread(self.printed, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace").strip()


def start(task: StageTask, control: socket.socket) -> StartedZygote:
    """Start it. It has nothing open but its socket, its task, and what it prints to."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, SO_PASSCRED, 1)
    printed = os.memfd_create("printed")
    file = task_file(task)
    words = [sys.executable, "-P", "-m", "aenv.inside.zygote.zygote", str(theirs.fileno()), str(file)]
    os.set_inheritable(theirs.fileno(), True)
    pid = os.fork()
    if pid:
        theirs.close()
        os.close(file)
        return StartedZygote(pid, ours, printed)
    try:
        control.close()
        os.close(task.nested)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        # With all functions of libraries found at once: each fork would find, and copy, for itself.
        os.execve(sys.executable, words, {**settings.variables(), "LD_BIND_NOW": "1"})
    finally:
        os._exit(1)
