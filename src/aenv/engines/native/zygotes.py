"""Zygotes as the engine sees them: started when first needed, asked to fork, and let go when they are not needed.

The engine speaks with the stager, which starts the zygote and is believed; never with the zygote itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...base import sockets
from ...base.errors import AEnvError, StartFailed, Unavailable
from ...base.limits import shortage
from ...isolation.cgroups import Cgroups, ControlGroup, owners
from ...isolation.sandbox import interpreter, protocol
from .forked import ForkedProcess, Handed, pid_of
from .idle_zygotes import UNUSED, Candidate, to_let_go
from .kinds import Kind, order

logger = logging.getLogger("aenv.engines.native")

_MAX_DESCRIPTORS = 4
_START_TIMEOUT = 30.0
_LEAVE = 1.0  # seconds; one without instances takes some milliseconds
_TOLD = 5.0  # seconds after an end in which it is told how it was
_CLEARED = 5.0  # seconds in which what was killed has ended, also on a busy host
_GROUP = "zygote"
_OWNED = re.compile(r"(?:zygote|instance)-(\d+-\d+)-[0-9a-f]+\Z")
_OWN_CPUS = 1.0  # of a zygote and the instances that it is forking: one process at a time works there
_OWN_PIDS = 64
_ROOM_STEP = 16  # instances
_FORK_BYTES = 4 << 20  # what counts for the group of its zygote of an instance that has waited: 3.4 MiB were seen
_FROM_STAGER = (
    *(protocol.Launched, protocol.Started, protocol.NotStarted),
    *(protocol.Prepared, protocol.NotForked, protocol.Ended),
)


class Zygote:
    """One zygote, by way of its stager."""

    def __init__(
        self, launcher: int, control: socket.socket, log: Path, group: ControlGroup, memory_bytes: int
    ) -> None:
        self._own_memory_bytes = memory_bytes
        self._launcher = launcher
        self._control = control
        self._log = log
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._forking: dict[int, asyncio.Future[Handed]] = {}
        self._ended: dict[int, asyncio.Future[int | None]] = {}
        self._living: set[int] = set()
        """Of those that were asked for; whether their end is told is the author's affair."""
        self._unassigned: set[int] = set()
        """Those of them that are not written down: they end with the stager."""
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        self._room = 0
        """For how many instances its group has room."""
        self._last_ready: tuple[bytes, protocol.Ready | protocol.NotReady] | None = None
        self._reason = ""
        """Why it is over."""
        self.gone = self._loop.create_future()
        """Done when none of its processes is left, nor any instance that it has forked."""
        self.cleared: asyncio.Future[None] | None = None
        """Done when nothing is left of it but its instances."""
        self.is_over = False
        self.is_failing = False
        """Whether a fork has failed for a reason that may be its own: another one is to take its place."""
        self.is_loaded = False
        """Whether it has loaded the environment."""
        self.owner = 0
        """The id on the host of the user who is root in its instances."""
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

    def fork(self, request: protocol.ForkRequest) -> asyncio.Task[ForkedProcess]:
        """A new spare instance; it is asked for at once. StartFailed when it can fork no more."""
        if self.is_over:  # since it was found
            raise StartFailed(self._reason)
        self._number += 1
        number = self._number
        self._living.add(number)
        self._unassigned.add(number)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        sockets.refuse_descriptors(ours)  # the environment's code may write to the other end
        ended = self._ended[number] = self._loop.create_future()
        forked = self._forking[number] = self._loop.create_future()
        self._make_room()
        self._send(replace(request, number=number), theirs)
        return self._loop.create_task(self._fork(number, forked, ours, ended))

    async def _fork(
        self, number: int, forked: asyncio.Future[Handed], ours: socket.socket, ended: asyncio.Future[int | None]
    ) -> ForkedProcess:
        try:
            fork = ForkedProcess(await forked, self, number, ours, ended)
        except BaseException:
            # It may be forked all the same: without its channel it goes away by itself.
            ours.close()
            self._forget(number)
            raise
        finally:
            self._forking.pop(number, None)
        fork.then(lambda: self._forget_soon(number))
        return fork

    def _forget_soon(self, number: int) -> None:
        self._living.discard(number)
        self._kept_or_gone(number)
        self._loop.call_later(_TOLD, self._forget, number)

    def _forget(self, number: int) -> None:
        self._living.discard(number)
        self._kept_or_gone(number)
        ended = self._ended.pop(number, None)
        if ended and not ended.done():
            ended.set_result(None)

    def keep(self, number: int) -> None:
        """Say that an instance is written down: it lives on when this process has ended."""
        if not self.is_over:
            self._send(protocol.Keep(number), None)
            self._kept_or_gone(number)

    def _send(self, message: object, theirs: socket.socket | None) -> None:
        """In the order in which they were asked for: what comes while others wait for room waits, too."""
        packet = protocol.encode(message)
        if self._unsent or not self._sent(packet, theirs):
            self._unsent.append((packet, theirs))
            if len(self._unsent) == 1:
                self._loop.add_writer(self._control.fileno(), self._send_rest)

    def _sent(self, packet: bytes, theirs: socket.socket | None) -> bool:
        try:
            socket.send_fds(self._control, [packet], [theirs.fileno()] if theirs else [])
        except BlockingIOError:
            return False
        except OSError as error:
            logger.debug("a stager cannot be asked: %s", error)  # it has ended, and so do its promises
        if theirs:
            theirs.close()
        return True

    def _send_rest(self) -> None:
        while self._unsent and self._sent(*self._unsent[0]):
            self._unsent.popleft()
        if not self._unsent:
            self._loop.remove_writer(self._control.fileno())

    def read_ready(self, line: bytes) -> protocol.Ready | protocol.NotReady:
        """What an instance of it says of itself: as a rule the same, to the byte, as the one before."""
        if self._last_ready is None or self._last_ready[0] != line:
            self._last_ready = line, protocol.ready(line)
        return self._last_ready[1]

    def close(self) -> None:
        """Let it go: it ends once it reads that, and its instances live on."""
        if not self.is_over:
            self._over("it was closed")

    def close_when_kept(self) -> None:
        """Let it go as soon as no instance would end with it; it is not found any more."""
        self.is_failing = True
        self._kept_or_gone(0)

    def _kept_or_gone(self, number: int) -> None:
        """One fewer that ends when this zygote is let go."""
        self._unassigned.discard(number)
        if self.is_failing and not self._unassigned and not self._unsent:
            self.close()

    def _make_room(self) -> None:
        """What the kernel keeps of a fork, while it lives, counts for the group of the process that forked."""
        if len(self._living) > self._room:
            self._room += _ROOM_STEP
            self._group.allow(
                memory_bytes=self._own_memory_bytes + self._room * _FORK_BYTES, pids=_OWN_PIDS + self._room
            )

    def _read(self) -> None:
        try:
            packet, handles, _, _ = socket.recv_fds(self._control, protocol.MAX_BYTES, _MAX_DESCRIPTORS)
            close_on_exec(handles)
        except BlockingIOError:
            return
        except OSError as error:
            packet, handles = b"", []
            logger.debug("a stager's socket broke: %s", error)
        if not packet:
            self._over(f"the stager ended{_tail(self._log)}")
            return
        left = self._obey(protocol.decode(packet, *_FROM_STAGER), handles)
        for handle in left:
            os.close(handle)

    def _obey(self, message: object, handles: list[int]) -> list[int]:
        """Do what follows from a message; returns the descriptors that are not needed."""
        match message:
            case protocol.Launched(owner):
                self.owner = owner
                with contextlib.suppress(OSError):  # it has ended, which the stager will tell
                    self._group.attach(pid_of(handles[0]))
                    self._control.send(protocol.encode(protocol.Go()))
            case protocol.Started(is_loaded):
                self.is_loaded = is_loaded
                self._settle(None)
            case protocol.NotStarted(reason):
                with contextlib.suppress(OSError):
                    if self._group.oom_kills():
                        reason = f"it used more memory than its limit while it was loaded; {reason}"
                self._over(reason)
            case protocol.Prepared(number, names):
                pidfd, log, *sockets = handles
                listeners = zip(names, (socket.socket(fileno=handle) for handle in sockets), strict=True)
                handed = Handed(pidfd, log, dict(listeners))
                forked = self._forking.get(number)
                if forked and not forked.done():
                    forked.set_result(handed)
                else:  # not waited for any more; without its channel it goes away by itself
                    handed.close()
                return []
            case protocol.NotForked(number, reason, code):
                forked = self._forking.get(number)
                if forked and not forked.done():
                    forked.set_exception(self._refusal(reason, code))
            case protocol.Ended(number, status):
                ended = self._ended.pop(number, None)
                if ended and not ended.done():
                    ended.set_result(status)
        return handles

    def _refusal(self, reason: str, code: int) -> AEnvError:
        """Why there is no fork. What the host is short of, another zygote would not have either."""
        if short := shortage(code):
            return Unavailable(f"the host has no more {short} for another instance: {reason}", retry_after=5)
        self.is_failing = True
        return StartFailed(f"the instance could not be forked: {reason}")

    def _settle(self, error: Exception | None) -> None:
        if self._started.done():
            return
        if error:
            self._started.set_exception(error)
            self._started.exception()  # read, so that it is not reported as lost: callers of `started` are told it
        else:
            self._started.set_result(None)

    def _over(self, reason: str) -> None:
        self.is_over = True
        self._reason = reason
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        for _, theirs in self._unsent:
            if theirs:
                theirs.close()
        self._unsent.clear()
        # What the author's code has started there, too: only instances have groups of their own.
        self.cleared = self._loop.run_in_executor(None, _clear, self._group)
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

    def __init__(self, log: Path, cgroups: Cgroups) -> None:
        self._log = log
        self._cgroups = cgroups
        self._by_kind: dict[Kind, Zygote] = {}
        self._failing: list[Zygote] = []
        """Those that another one has replaced, and that have forked what is not written down yet."""
        self._used_at: dict[Kind, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def get(self, kind: Kind, memory_bytes: int) -> Zygote:
        """One that can fork; a new one may use so much memory itself. StartFailed when none can be started."""
        zygote = self._by_kind.get(kind)
        if zygote and zygote.is_failing and not zygote.is_over:
            self._failing = [*(one for one in self._failing if not one.is_over), zygote]
        if zygote and (zygote.is_over or zygote.is_failing):
            zygote = None
        is_new = zygote is None
        if zygote is None:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            group = self._cgroups.make(
                f"{_GROUP}-{owners.own()}-{secrets.token_hex(8)}",
                cpus=_OWN_CPUS,
                memory_bytes=memory_bytes,
                pids=_OWN_PIDS,
            )
            try:
                zygote = self._by_kind[kind] = start(kind, self._log, group, memory_bytes)
            except BaseException:
                group.remove()
                raise
        self._used_at[kind] = time.monotonic()
        if self._timer is None or is_new:
            self._close_unused()
        if zygote.has_started:
            return zygote
        try:
            await zygote.started()
        except TimeoutError:
            zygote.close()
            raise StartFailed(f"the zygote was not ready within {_START_TIMEOUT:g} s{_tail(self._log)}") from None
        return zygote

    def let_go(self, kind: Kind) -> None:
        """That of this kind is not needed any more; its instances live on."""
        if zygote := self._by_kind.pop(kind, None):
            del self._used_at[kind]
            zygote.close_when_kept()
            self._failing = [*(one for one in self._failing if not one.is_over), zygote]

    async def close(self) -> None:
        """Let all go, and return when they are gone, but for those whose instances live on."""
        if self._timer:
            self._timer.cancel()
        zygotes = [*self._by_kind.values(), *self._failing]
        self._by_kind.clear()
        for zygote in zygotes:
            zygote.close()
        if zygotes:
            await asyncio.gather(*(zygote.cleared for zygote in zygotes if zygote.cleared))
            await asyncio.wait([zygote.gone for zygote in zygotes], timeout=_LEAVE)

    def _close_unused(self) -> None:
        if self._timer:
            self._timer.cancel()
        candidates = [
            Candidate(kind, kind.tenant, self._used_at[kind], not (zygote.has_started or zygote.is_over))
            for kind, zygote in self._by_kind.items()
        ]
        for kind in to_let_go(candidates, time.monotonic()):
            self._by_kind.pop(kind).close()
            del self._used_at[kind]
        self._timer = asyncio.get_running_loop().call_later(UNUSED, self._close_unused) if self._by_kind else None


def is_in_use(group: str) -> bool:
    """Whether a control group of this name was made by an engine that lives."""
    owner = owner_of(group)
    return owner is not None and owners.runs(owner)


def owner_of(group: str) -> str | None:
    """The process that made the control group of a zygote or a spare instance; None for any other group."""
    found = _OWNED.match(group)
    return found[1] if found else None


def start(kind: Kind, log: Path, group: ControlGroup, memory_bytes: int) -> Zygote:
    """Start a zygote; it can be asked to fork at once, and does so when it is ready."""
    told = protocol.encode(order(kind))  # first: it may refuse
    python = str(kind.python.executable) if kind.python else sys.executable
    packages = {"PYTHONPATH": str(kind.python.packages)} if kind.python else {}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, log.open("ab") as output:
        launcher = os.posix_spawn(
            python,
            [python, "-P", "-m", "aenv.isolation.sandbox.launcher", "3"],
            interpreter.variables() | packages,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3),
            ],
            setsid=True,
        )
    ours.setblocking(False)
    ours.send(told)
    return Zygote(launcher, ours, log, group, memory_bytes)


def _clear(group: ControlGroup) -> None:
    try:
        group.kill()
        group.remove(timeout=_CLEARED)
    except OSError as error:  # the next engine on this home finds it
        logger.warning("a control group could not be removed: %s", error)


def close_on_exec(descriptors: Iterable[int]) -> None:
    """What was received is inherited by the next program that is started, unless it is told otherwise."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)


def _tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        text = log.read_bytes()[-2048:].decode(errors="replace").strip()
        if text:
            return f"; its log says last:\n{text}"
    return ""
