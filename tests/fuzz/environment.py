"""The hostile environment: it has taken its instance over, and sends what the seeds say.

With an argument (a seed) it plays the kind `ready` while it is loaded; as the module `boot_ahead`, which `preload`
names, the kind `boot`. Otherwise it answers the gateway's
connections itself: `GET /reply/SEED` with that reply; `GET /history` with the history of the seed that
`GET /history/SEED` named before; `GET /log/SEED` changes the log, and says so.
"""

from __future__ import annotations

import array
import contextlib
import os
import shutil
import socket
import struct
import sys
import threading
import time
from typing import Any

import generators

from aenv import register_tool

LOG = "/var/log/instance.log"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@register_tool
def say() -> str:
    """Never called: the runtime has no caller."""
    return "hello"


class Done(Exception):
    """The connection is over."""


def play(connection: socket.socket, steps: list[generators.Step]) -> None:
    """Send what the steps say. Done when the connection has had its end."""
    for step, argument in steps:
        if step == "send":
            connection.sendall(argument)
        elif step == "repeat":
            piece, times = argument
            for _ in range(times):
                connection.sendall(piece)
        elif step == "rights":
            with contextlib.suppress(OSError):
                rights = array.array("i", [0] * argument)
                connection.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        elif step == "receive":
            with contextlib.suppress(OSError):  # what is meant for others, with what comes along
                socket.recv_fds(connection, 1 << 16, argument, socket.MSG_DONTWAIT)
        elif step == "half-close":
            connection.shutdown(socket.SHUT_WR)
        elif step == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise Done
        elif step == "close":
            raise Done
        elif step == "hold":
            connection.recv(1)  # until the gateway has had enough
            raise Done
        elif step == "exit":
            os._exit(3)
        elif step == "raise":
            raise RuntimeError("the environment cannot be loaded")


class Served:
    """What is remembered between requests."""

    def __init__(self) -> None:
        self.history = 0

    def serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._connection, args=(connection,), daemon=True).start()

    def _connection(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, Done):
            while head := self._request(connection):
                self._answer(connection, head.split(b" ")[1].decode().strip("/").split("/"))

    def _request(self, connection: socket.socket) -> bytes:
        """The head of a request; its body, if there is one, is in the way of nothing here."""
        head = b""
        while b"\r\n\r\n" not in head:
            if not (piece := connection.recv(65536)):
                return b""
            head += piece
        return head

    def _answer(self, connection: socket.socket, path: list[str]) -> None:
        match path:
            case ["reply", seed]:
                play(connection, generators.steps("reply", int(seed)))
            case ["history"]:
                play(connection, generators.steps("history", self.history))
            case ["history", seed]:
                self.history = int(seed)
                connection.sendall(OK)
            case ["log", seed]:
                for change, argument in generators.steps("log", int(seed)):
                    with contextlib.suppress(OSError):  # the disk of the instance may be full, or a trick too old
                        change_log(change, argument)
                connection.sendall(OK)
            case _:
                connection.sendall(OK)


def change_log(change: str, argument: Any) -> None:
    """Lay something else where the gateway finds the log."""
    if not os.path.isfile(LOG) or os.path.islink(os.path.dirname(LOG)):
        _new_log()
    if change == "append":
        # Without waiting: a trick that still goes on may lay a fifo here.
        descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)
        try:
            os.write(descriptor, argument)
            is_long = os.fstat(descriptor).st_size > 16 << 20
        finally:
            os.close(descriptor)
        if is_long:
            _new_log()
    elif change == "truncate":
        os.truncate(LOG, argument)
    elif change == "closed":
        os.chmod(LOG, 0)
    elif change == "swap":
        threading.Thread(target=_swap, daemon=True).start()
    elif change == "folder link":
        shutil.rmtree(os.path.dirname(LOG))
        os.symlink(argument, os.path.dirname(LOG))
    else:
        os.unlink(LOG)
        if change == "link":
            os.symlink(argument, LOG)
        elif change == "fifo":
            os.mkfifo(LOG)
        elif change == "folder":
            os.mkdir(LOG)
        elif change == "socket":
            socket.socket(socket.AF_UNIX).bind(LOG)


def _new_log() -> None:
    folder = os.path.dirname(LOG)
    with contextlib.suppress(OSError):
        os.unlink(folder) if os.path.islink(folder) else shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    with open(LOG, "w") as file:
        file.write("begun again\n")


def _swap() -> None:
    """For a moment the file is a link, a file, a link, ..."""
    with contextlib.suppress(OSError):
        os.symlink("/etc/passwd", f"{LOG}.other")
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            os.rename(LOG, f"{LOG}.file")
            os.rename(f"{LOG}.other", LOG)
            os.rename(LOG, f"{LOG}.other")
            os.rename(f"{LOG}.file", LOG)


def sockets() -> list[socket.socket]:
    """Those that are open here, each a second time."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            found.append(socket.socket(fileno=os.dup(number)))
    return found


def take_listener() -> socket.socket | None:
    """The socket that the gateway connects to; the runtime is left with one that has no client."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            found = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        if found.family == socket.AF_UNIX and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            decoy = socket.socket(socket.AF_UNIX)
            decoy.bind("/run/decoy")
            decoy.listen()
            os.dup2(decoy.fileno(), number)
            found.setblocking(True)
            return found
        found.close()
    return None


def say_to_all(steps: list[generators.Step]) -> None:
    """Write this to every channel that is open now: before the runtime says that it is ready, or in a zygote."""
    for channel in sockets():
        with channel:
            if channel.family != socket.AF_UNIX or channel.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            channel.settimeout(2)  # the gateway may have had enough, and read no more
            try:
                with contextlib.suppress(OSError, Done):
                    play(channel, steps)
            finally:
                channel.setblocking(True)  # of all who share the socket
    if ("later", None) in steps:
        threading.Thread(target=_say_again, args=(steps[:3],), daemon=True).start()


def _say_again(steps: list[generators.Step]) -> None:
    """While instances are asked for, and forked."""
    for _ in range(100):
        time.sleep(0.005)
        say_to_all(steps)


if __name__ == "boot_ahead":  # a copy that is named in `preload`, and runs before any instance does
    say_to_all(generators.steps("boot", SEED))  # type: ignore[name-defined]  # noqa: F821
elif len(sys.argv) > 1:
    say_to_all(generators.steps("ready", int(sys.argv[1])))
elif (taken := take_listener()) is not None:
    threading.Thread(target=Served().serve, args=(taken,), daemon=True).start()
