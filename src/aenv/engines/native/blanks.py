"""Blank instances: forked and isolated, waiting to be told what they are; some of them are made ahead.

A blank instance has never seen a user. Once it is assigned it is never blank again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ...cgroups import Cgroups, Group
from ...egress import PORT as EGRESS_PORT
from ...errors import AEnvError
from ...sandbox.places import ORIGINAL
from ..base import Limits
from ..descriptors import readable
from .zygotes import Fork, Kind, Zygotes, close_on_exec

logger = logging.getLogger("aenv.engines.native")

DEFAULTS = Limits(memory_bytes=4 << 30, storage_bytes=1 << 30, pids=1024, open_files=4096)
_BYTES_PER_INODE = 4096
_MAX_LINE = 16 << 20
_UNDISTURBED = 0.05  # seconds
_RETRY = 1.0  # seconds after a blank instance could not be made ahead
_number = count(1)
SOCKET = "/run/second.sock"
"""Where the first part of an instance reaches the second."""


@dataclass(frozen=True)
class Recipe:
    """All that must be known before an instance is assigned."""

    kind: Kind
    limits: Limits
    egress: bool = False
    second: bool = False
    """Whether it will have a second part."""
    keep_history: bool = True
    is_second: bool = False

    def request(self) -> dict[str, object]:
        storage = self.limits.storage_bytes or 0
        return {
            "view": {
                "storage_bytes": storage,
                "inodes": max(storage // _BYTES_PER_INODE, 1024),
                "original": ORIGINAL if self.is_second else "",
            },
            "hostname": "instance",
            "egress": EGRESS_PORT if self.egress else 0,
            "open_files": self.limits.open_files,
            "second": SOCKET if self.second else "",
            "keep_history": self.keep_history,
        }


@dataclass
class Blank:
    """One of them; after its assignment, the instance."""

    fork: Fork
    group: Group
    owns_group: bool = True
    is_over: bool = False
    _log: int | None = None
    _has_begun: bool = False
    """Whether it has said its first words."""
    _is_loaded: bool = False
    """Whether it loads its environment before it is assigned; it says then that it is ready, too."""
    _hearing: asyncio.Task[dict[str, Any]] | None = None
    _first_words: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listeners: dict[str, socket.socket] = field(default_factory=dict)
    _heard: bytearray = field(default_factory=bytearray)
    _ending: asyncio.Task[None] | None = None

    async def assign(self, listener: socket.socket, assignment: Mapping[str, object]) -> None:
        """Tell it what it is. It loads the environment, and says on its channel when it is ready."""
        text = json.dumps(assignment).encode()
        try:
            message = struct.pack("!I", len(text)) + text
            sent = socket.send_fds(self.fork.channel, [message], [listener.fileno()])
            if rest := message[sent:]:
                await asyncio.get_running_loop().sock_sendall(self.fork.channel, rest)
        except OSError as error:  # it has ended; what it said tells why
            logger.debug("an instance ended before it was assigned: %s", error)

    async def line(self) -> bytes:
        """The next line that it says. EOFError when it says no more."""
        await self._isolated()
        loop = asyncio.get_running_loop()
        while (end := self._heard.find(b"\n")) < 0:
            try:
                piece = await loop.sock_recv(self.fork.channel, 1 << 16)
            except ConnectionResetError:  # it ended before it had read all
                raise EOFError from None
            if not piece or len(self._heard) > _MAX_LINE:
                raise EOFError
            self._heard += piece
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return line

    def hear_ahead(self) -> None:
        """Be told, as soon as it is so, that it has loaded its environment."""
        self._hearing = asyncio.create_task(self._said())
        _ = self.fork.start_time  # whoever takes it need not look

    @property
    def is_prepared(self) -> bool:
        """Whether it has done all that can be done before it is assigned."""
        return self._has_begun and (not self._is_loaded or bool(self._hearing and self._hearing.done()))

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """What it offers, where it has said so before it is assigned."""
        if not (self._is_loaded and self._hearing and self._hearing.done() and not self._hearing.exception()):
            return None
        said = self._hearing.result()
        return said["tools"] if said["ready"] else None

    async def until_ready(self, *, confirmed: bool = True) -> dict[str, Any]:
        """What it says when it has loaded its environment, or has failed to. EOFError when it ends instead.

        With `confirmed`, once more after its assignment: without, that cannot go wrong.
        """
        said = await (self._hearing or self._said())
        return await self._said() if confirmed and said["ready"] and self._is_loaded else said

    async def _said(self) -> dict[str, Any]:
        return _what(await self.line())

    async def egress(self) -> socket.socket:
        """The listener of its way out; for the caller to close. EOFError when it did not come so far."""
        return await self._listener("egress")

    async def second_listener(self) -> socket.socket:
        """The listener that it takes for its second part; for the caller to close. EOFError likewise."""
        return await self._listener("second")

    async def _listener(self, name: str) -> socket.socket:
        await self._isolated()
        if name not in self._listeners:
            raise EOFError
        return self._listeners.pop(name)

    def printed(self, most: int) -> bytes:
        """The end of its log; empty when it did not come so far."""
        if self._log is None:
            return b""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, most, max(0, size - most))

    async def _isolated(self) -> None:
        """Its first words, with what it hands over; when isolating it has failed, they are its last."""
        async with self._first_words:  # a descriptor has one reader
            if not self._has_begun:
                await self._hear_first_words()

    async def _hear_first_words(self) -> None:
        await readable(self.fork.channel.fileno())
        try:
            text, handed, _, _ = socket.recv_fds(self.fork.channel, 1 << 16, 3)
        except ConnectionResetError:
            raise EOFError from None
        close_on_exec(handed)
        if handed:
            self._log, *listeners = handed
            self._has_begun = True
            first, _, rest = text.partition(b"\n")
            said = json.loads(first)
            self._heard += rest
            self._is_loaded = said["loaded"]
            self._listeners = {
                name: socket.socket(fileno=fd) for name, fd in zip(said["isolated"], listeners, strict=True)
            }
        else:
            self._heard += text
            if not text:
                raise EOFError

    def let_go(self) -> None:
        """It is somebody's now, and has told all that we wanted to know.

        Who ends it with its log still open would have to wait while the kernel takes its file system apart.
        """
        self.fork.channel.close()
        self._close_log()

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    async def end(self) -> None:
        """Return when nothing of it is left. Who gives up waiting does not stop it."""
        self.is_over = True
        self._ending = self._ending or asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self.fork.kill()
        with contextlib.suppress(OSError):
            self.group.thaw()  # or it would not die
        await self.fork.over()
        if self._hearing:
            self._hearing.cancel()
            await asyncio.wait({self._hearing})
        self.fork.channel.close()
        self._close_log()
        for listener in self._listeners.values():
            listener.close()
        if self.owns_group:
            await _remove(self.group)


class Blanks:
    """Makes blank instances when they are needed, and keeps some ready where it was told to."""

    def __init__(self, zygotes: Zygotes, cgroups: Cgroups, refill: Callable[[], None]) -> None:
        """`refill` makes ahead, in the background, what else an instance needs."""
        self._zygotes = zygotes
        self._cgroups = cgroups
        self._refill_others = refill
        self._wanted: dict[Recipe, int] = {}
        self._ready: dict[Recipe, deque[Blank]] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def take(self, recipe: Recipe, name: str) -> Blank:
        """One that is ready, else a new one."""
        ready = self._ready.get(recipe)
        while ready:
            blank = ready.popleft()
            # Whoever took it is to have the processor first; when there is none left, nobody is to wait.
            asyncio.get_running_loop().call_later(_UNDISTURBED if ready else 0, self._changed.set)
            if not blank.fork.is_over:
                return blank
            await blank.end()
        if self._task is None:
            self._task = asyncio.create_task(self._refill())
        asyncio.get_running_loop().call_later(_UNDISTURBED, self._changed.set)
        return await self.make(recipe, name)

    async def make(self, recipe: Recipe, name: str, *, within: Group | None = None) -> Blank:
        """A new one, in its control groups, about to isolate itself. On failure nothing is left.

        With `within`, in the groups of another, which stay that one's.
        """
        zygote = await self._zygotes.get(recipe.kind)
        forking = zygote.fork(recipe.request())
        limits = recipe.limits
        try:
            # While the zygote forks:
            group = within or self._cgroups.make(
                name, cpus=limits.cpus, memory_bytes=limits.memory_bytes, pids=limits.pids
            )
        except BaseException:
            _drop(forking)
            raise
        try:
            fork = await asyncio.shield(forking)
        except BaseException:
            _drop(forking)
            if within is None:
                await _remove(group)
            raise
        blank = Blank(fork, group, owns_group=within is None)
        try:
            with contextlib.suppress(ProcessLookupError):  # it has ended already, and its channel will tell
                group.attach(fork.pid)
            with contextlib.suppress(OSError):
                fork.channel.send(b"go")
        except BaseException:
            await blank.end()
            raise
        return blank

    # Made ahead

    def keep(self, recipe: Recipe, wanted: int) -> None:
        """Have so many ready from now on."""
        if wanted:
            self._wanted[recipe] = wanted
        else:
            self._wanted.pop(recipe, None)
        if self._task is None:
            self._task = asyncio.create_task(self._refill())
        self._changed.set()

    def ready(self) -> Mapping[Recipe, int]:
        """How many wait to be assigned, and for nothing else."""
        return {recipe: sum(blank.is_prepared for blank in blanks) for recipe, blanks in self._ready.items()}

    async def close(self) -> None:
        self._wanted.clear()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        for blanks in self._ready.values():
            await asyncio.gather(*(blank.end() for blank in blanks))
        self._ready.clear()

    async def _refill(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._refill_once()
                await asyncio.to_thread(self._cgroups.refill)
                await asyncio.to_thread(self._refill_others)
            except (AEnvError, OSError) as error:
                logger.warning("no blank instance could be made ahead: %s", error)
                await asyncio.sleep(_RETRY)
                continue
            await self._changed.wait()

    async def _refill_once(self) -> None:
        for recipe in [*self._ready]:
            blanks = self._ready[recipe]
            while len(blanks) > self._wanted.get(recipe, 0):
                await blanks[-1].end()  # only then forgotten: whoever closes us must find it
                blanks.pop()
            if not blanks and recipe not in self._wanted:
                del self._ready[recipe]
        for recipe in [*self._wanted]:
            blanks = self._ready.setdefault(recipe, deque())
            while len(blanks) < self._wanted.get(recipe, 0):
                blank = await self.make(recipe, f"warm-{os.getpid()}-{next(_number)}")
                blank.hear_ahead()
                blanks.append(blank)


def _what(line: bytes) -> dict[str, Any]:
    """What it says of itself; EOFError when that is nothing that we know."""
    said = json.loads(line)
    if not isinstance(said, dict) or not isinstance(
        said.get("tools" if said.get("ready") else "error"), list | str
    ):
        raise EOFError
    return said


async def _remove(group: Group) -> None:
    """Remove it: at once as a rule, else in a thread, since its last process may take a while."""
    try:
        group.remove(timeout=0)
    except OSError:
        await asyncio.to_thread(group.remove)


def _drop(forking: asyncio.Future[Fork]) -> None:
    """Nobody wants it any more: without its channel a blank instance goes away by itself."""

    def close(done: asyncio.Future[Fork]) -> None:
        if not done.cancelled() and not done.exception():
            done.result().kill()
            done.result().channel.close()

    forking.add_done_callback(close)
