"""Zygotes as the engine sees them: started when first needed, asked to fork, and let go when nobody needs them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import StartFailed
from ...sandbox import interpreter
from ...sandbox.mounts import Bind
from ...sandbox.root import Root
from .. import proc
from ..base import DATA_PLACE

logger = logging.getLogger("aenv.engines.native")

_MAX_MESSAGE = 64 << 10
_START_TIMEOUT = 30.0
_MAX_ZYGOTES = 64
_LEAVE = 1.0  # seconds; one without instances takes some milliseconds
_UNUSED = 600.0  # seconds after which one that nobody needs is let go


@dataclass(frozen=True)
class Kind:
    """What all instances of one zygote have in common."""

    project: Path
    root: Root = field(compare=False)
    layers: tuple[tuple[str, tuple[Path, ...]], ...]
    """Of the root; it can be compared."""
    layer: Path | None = None
    preload: tuple[str, ...] = ()
    stamp: str = ""
    """Changes with the project's code, where some of it is loaded ahead."""
    host_network: bool = False
    data: Path | None = None
    folders: tuple[tuple[str, Path], ...] = ()
    storage: Path | None = None


class Fork:
    """A process that a zygote has forked: a blank instance, isolated or about to be."""

    def __init__(self, pidfd: int, owner: int, channel: socket.socket, ended: asyncio.Future[int | None]) -> None:
        self.pid = _pid_of(pidfd)
        self.owner = owner
        """Who is root inside, on the host."""
        self.channel = channel
        self.status = ended
        """How it ended, as wait(2) tells; None when nobody can."""
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
        """Also when nobody has been told yet."""
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

    def kill(self) -> None:
        if not self._over.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._over.set_result(None)


class Zygote:
    """One zygote."""

    def __init__(self, launcher: int, control: socket.socket, log: Path) -> None:
        self._launcher = launcher
        self._control = control
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._forking: dict[int, asyncio.Future[int]] = {}
        self._ended: dict[int, asyncio.Future[int | None]] = {}
        self._unsent: deque[tuple[bytes, socket.socket]] = deque()
        self.gone = self._loop.create_future()
        """Done when none of its processes is left, nor any instance that it has forked."""
        self.is_over = False
        self.owner = 0
        """Who is root in its instances, on the host."""
        self._loop.add_reader(control.fileno(), self._read)
        self._pidfd = os.pidfd_open(launcher)
        self._loop.add_reader(self._pidfd, self._wait)

    @property
    def has_started(self) -> bool:
        return self._started.done() and not self._started.exception()

    async def started(self) -> None:
        """Return when it can fork. StartFailed with its last words."""
        async with asyncio.timeout(_START_TIMEOUT):
            await asyncio.shield(self._started)

    def fork(self, request: Mapping[str, Any]) -> asyncio.Task[Fork]:
        """A new blank instance; it is asked for at once."""
        self._number += 1
        number = self._number
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ended = self._ended[number] = self._loop.create_future()
        forked = self._forking[number] = self._loop.create_future()
        message = json.dumps({**request, "fork": number}).encode()
        # In the order in which they were asked for: who comes while others wait for room waits, too.
        is_sent = not self._unsent and self._sent(message, theirs)
        if not is_sent:
            self._unsent.append((message, theirs))
            if len(self._unsent) == 1:
                self._loop.add_writer(self._control.fileno(), self._send_rest)
        return self._loop.create_task(self._fork(number, forked, ours, ended))

    async def _fork(
        self, number: int, forked: asyncio.Future[int], ours: socket.socket, ended: asyncio.Future[int | None]
    ) -> Fork:
        try:
            return Fork(await forked, self.owner, ours, ended)
        except BaseException:
            # It may be forked all the same: without its channel it goes away by itself.
            ours.close()
            self._ended.pop(number, None)
            raise
        finally:
            self._forking.pop(number, None)

    def _sent(self, message: bytes, theirs: socket.socket) -> bool:
        try:
            socket.send_fds(self._control, [message], [theirs.fileno()])
        except BlockingIOError:
            return False
        except OSError as error:
            logger.debug("a zygote cannot be asked: %s", error)  # it has ended, and so do its promises
        theirs.close()
        return True

    def _send_rest(self) -> None:
        while self._unsent and self._sent(*self._unsent[0]):
            self._unsent.popleft()
        if not self._unsent:
            self._loop.remove_writer(self._control.fileno())

    def close(self) -> None:
        """Let it go: it ends once it reads that, and its instances live on."""
        if not self.is_over:
            self._over("it was closed")

    def _read(self) -> None:
        try:
            message, handles, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE, 2)
            close_on_exec(handles)
        except BlockingIOError:
            return
        except OSError as error:
            message, handles = b"", []
            logger.debug("a zygote's socket broke: %s", error)
        if not message:
            self._over(f"the zygote ended{_tail(self._log)}")
            return
        match json.loads(message):
            case {"forked": int(number)} if len(handles) == 1:
                forked = self._forking.get(number)
                if forked and not forked.done():
                    forked.set_result(handles[0])
                    return
            case {"failed": int(number), "error": str(reason)}:
                forked = self._forking.get(number)
                if forked and not forked.done():
                    forked.set_exception(StartFailed(f"the zygote cannot fork: {reason}"))
            case {"ended": int(number), "status": int(status)}:
                ended = self._ended.pop(number, None)
                if ended and not ended.done():
                    ended.set_result(status)
            case {"launched": True, "owner": int(owner)}:
                self.owner = owner
            case {"started": True}:
                self._settle(None)
            case {"started": False, "error": str(reason)}:
                self._settle(StartFailed(f"no isolation here: {reason}; 'aenv doctor' says what is missing"))
        for handle in handles:  # of a fork that nobody waits for
            os.close(handle)

    def _settle(self, error: Exception | None) -> None:
        if self._started.done():
            return
        if error:
            self._started.set_exception(error)
            self._started.exception()  # told to whoever asks; nobody has to
        else:
            self._started.set_result(None)

    def _over(self, reason: str) -> None:
        self.is_over = True
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        while self._unsent:
            self._unsent.popleft()[1].close()
        self._settle(StartFailed(reason))
        for forked in self._forking.values():
            if not forked.done():
                forked.set_exception(StartFailed(reason))
        for ended in self._ended.values():
            if not ended.done():
                ended.set_result(None)
        self._ended.clear()

    def _wait(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        os.waitpid(self._launcher, 0)
        self.gone.set_result(None)


class Zygotes:
    """The zygotes of an engine."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._by_kind: dict[Kind, Zygote] = {}
        self._used_at: dict[Kind, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def get(self, kind: Kind) -> Zygote:
        """One that can fork. StartFailed when none can be started."""
        zygote = self._by_kind.get(kind)
        if zygote is None or zygote.is_over:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            zygote = self._by_kind[kind] = start(kind, self._log)
        self._used_at[kind] = time.monotonic()
        if self._timer is None or len(self._by_kind) > _MAX_ZYGOTES:
            self._close_unused()
        if zygote.has_started:
            return zygote
        try:
            await zygote.started()
        except TimeoutError:
            zygote.close()
            raise StartFailed(f"the zygote was not ready within {_START_TIMEOUT:g} s{_tail(self._log)}") from None
        return zygote

    async def close(self) -> None:
        """Let all go, and return when they are gone, but for those whose instances live on."""
        if self._timer:
            self._timer.cancel()
        zygotes = [*self._by_kind.values()]
        self._by_kind.clear()
        for zygote in zygotes:
            zygote.close()
        if zygotes:
            await asyncio.wait([zygote.gone for zygote in zygotes], timeout=_LEAVE)

    def _close_unused(self) -> None:
        """Let go of those that were not used for long, and of the longest unused where there are too many."""
        if self._timer:
            self._timer.cancel()
        oldest_first = sorted(self._by_kind, key=lambda kind: self._used_at[kind])
        too_many = len(oldest_first) - _MAX_ZYGOTES
        limit = time.monotonic() - _UNUSED
        for place, kind in enumerate(oldest_first):
            if place < too_many or self._used_at[kind] < limit:
                self._by_kind.pop(kind).close()
                del self._used_at[kind]
        self._timer = asyncio.get_running_loop().call_later(_UNUSED, self._close_unused) if self._by_kind else None


def start(kind: Kind, log: Path) -> Zygote:
    """Start a zygote; it can be asked to fork at once, and does so when it is ready."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, log.open("ab") as output:
        launcher = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "aenv.sandbox.launch", "3"],
            interpreter.variables(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
            ],
            setsid=True,
        )
    ours.setblocking(False)
    ours.send(json.dumps(order(kind)).encode())
    return Zygote(launcher, ours, log)


def order(kind: Kind) -> dict[str, Any]:
    """What a zygote is told first."""
    binds = [Bind(path, path, is_ours=False) for path in interpreter.folders()]
    binds.append(Bind(str(kind.project), "/environment"))
    if kind.layer:
        binds.append(Bind(str(kind.layer), str(kind.layer)))
    if kind.data:
        binds.append(Bind(str(kind.data), DATA_PLACE))
    binds += [Bind(str(folder), folder_place(variable)) for variable, folder in kind.folders]
    if kind.storage:
        binds.append(Bind(str(kind.storage), "/storage", is_writable=True))
    source = "/environment/src" if (kind.project / "src").is_dir() else "/environment"
    return {
        "layers": [str(path) for path in kind.root.layers],
        "system": {target: [str(path) for path in paths] for target, paths in kind.root.system.items()},
        "binds": [vars(bind) for bind in binds],
        "layer": str(kind.layer) if kind.layer else None,
        "source": source,
        "preload": kind.preload,
        "host_network": kind.host_network,
        "masked": [interpreter.built_in_environments()],
        "program": "aenv.boot.zygote",
    }


def folder_place(variable: str) -> str:
    """Where an instance sees a further folder."""
    return f"/folders/{variable.lower()}"


def close_on_exec(descriptors: Iterable[int]) -> None:
    """What was received is inherited by the next program that is started, unless it is told otherwise."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)


def _pid_of(pidfd: int) -> int:
    """The number of a process in our own pid namespace; -1 when it has ended."""
    with open(f"/proc/self/fdinfo/{pidfd}") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith("Pid:")), -1)


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        text = log.read_bytes()[-2048:].decode(errors="replace").strip()
        if text:
            return f"; its log says last:\n{text}"
    return ""
