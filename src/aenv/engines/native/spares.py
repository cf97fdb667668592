"""Spare instances: forked and isolated, waiting to be told what they are; some of them are made ahead.

A spare instance has never seen a user. Once it is assigned it is never spare again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import AEnvError
from ...base.supervision import Tasks, kept_up
from ...isolation.cgroups import Cgroups, ControlGroup, owners
from ...isolation.egress import PORT as EGRESS_PORT
from ...isolation.sandbox import protocol
from ...isolation.sandbox.inside_paths import ORIGINAL
from ..base import ResourceLimits
from .forked import ForkedProcess
from .kinds import Kind
from .zygotes import Zygote, Zygotes

logger = logging.getLogger("aenv.engines.native")

_BYTES_PER_INODE = 4096
_ZYGOTE_BYTES = 128 << 20  # the interpreter, twice, and room for compiled code
_SHORT = 64 << 10  # bytes of a line that are read at once; longer ones would keep all others waiting
_UNDISTURBED = 0.05  # seconds
_DIES = 3.0  # seconds after which an instance that was killed is held up by something
_ANSWERS = 30.0  # seconds in which a fork comes, or does not
_RETRY = 1.0  # seconds after a spare instance could not be made ahead
Said = protocol.Ready | protocol.NotReady
SOCKET = "/run/sidecar.sock"
"""Where the main part of an instance reaches its sidecar."""


@dataclass(frozen=True)
class Recipe:
    """All that must be known before an instance is assigned."""

    kind: Kind
    limits: ResourceLimits
    egress: bool = False
    has_sidecar: bool = False
    """Whether it will have a sidecar."""
    keep_history: bool = True
    is_sidecar: bool = False

    def request(self) -> protocol.ForkRequest:
        storage = self.limits.storage_bytes or 0
        return protocol.ForkRequest(
            storage_bytes=storage,
            inodes=max(storage // _BYTES_PER_INODE, 1024),
            original=ORIGINAL if self.is_sidecar else "",
            egress_port=EGRESS_PORT if self.egress else 0,
            sidecar_socket=SOCKET if self.has_sidecar else "",
            open_files=self.limits.open_files or 0,
            keep_history=self.keep_history,
            number=0,
        )

    @property
    def zygote_memory_bytes(self) -> int:
        """What the process that loads the code may use: as much as an instance, which has it loaded too."""
        return (self.limits.memory_bytes or 0) + _ZYGOTE_BYTES


@dataclass(eq=False)
class NativeInstance:
    """One of them; after its assignment, the instance."""

    fork: ForkedProcess
    group: ControlGroup
    owns_group: bool = True
    is_over: bool = False
    _log: int | None = None
    _hearing: asyncio.Task[Said] | None = None
    _heard: bytearray = field(default_factory=bytearray)
    _ending: asyncio.Task[None] | None = None

    async def assign(self, listener: socket.socket, assignment: protocol.Assignment) -> None:
        """Tell it what it is. It loads the environment, and says on its channel when it is ready."""
        text = assignment.packed()
        try:
            message = struct.pack("!I", len(text)) + text
            sent = socket.send_fds(self.fork.channel, [message], [listener.fileno()])
            if rest := message[sent:]:
                await asyncio.get_running_loop().sock_sendall(self.fork.channel, rest)
        except OSError as error:  # it has ended; what it said tells why
            logger.debug("an instance ended before it was assigned: %s", error)

    def __post_init__(self) -> None:
        self._log = self.fork.log

    async def line(self) -> bytes:
        """The next line that it says. EOFError when it says no more, Broken when it says too much."""
        loop = asyncio.get_running_loop()
        while (end := self._heard.find(b"\n")) < 0:
            try:
                piece = await loop.sock_recv(self.fork.channel, 1 << 16)
            except ConnectionResetError:  # it ended before it had read all
                raise EOFError from None
            if not piece:
                raise EOFError
            if len(self._heard) > protocol.MAX_READY_BYTES:
                raise protocol.Broken(f"its ready line is longer than {protocol.MAX_READY_BYTES >> 20} MiB")
            self._heard += piece
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return line

    def hear_ahead(self) -> None:
        """Be told, as soon as it is so, that it has loaded its environment."""
        self._hearing = asyncio.create_task(self._said())
        _ = self.fork.start_time  # so that `Spares.take` need not look

    @property
    def is_prepared(self) -> bool:
        """Whether it has done all that can be done before it is assigned."""
        return not self.fork.is_loaded or bool(self._hearing and self._hearing.done())

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        """What it offers, where it has said so before it is assigned."""
        if not (self.fork.is_loaded and self._hearing and self._hearing.done() and not self._hearing.exception()):
            return None
        said = self._hearing.result()
        return said.tools if isinstance(said, protocol.Ready) else None

    async def until_ready(self, *, confirmed: bool = True) -> Said:
        """What it says when it has loaded its environment, or has failed to. EOFError when it ends instead.

        With `confirmed`, once more after its assignment: without, that cannot go wrong.
        """
        said = await (self._hearing or self._said())
        if confirmed and isinstance(said, protocol.Ready) and self.fork.is_loaded:
            return await self._said()
        return said

    async def _said(self) -> Said:
        try:
            line = await self.line()
            if len(line) > _SHORT:
                return await asyncio.to_thread(protocol.ready, line)
            return self.fork.zygote.read_ready(line)
        except protocol.Broken as error:
            return protocol.NotReady(str(error))

    def listener(self, name: str) -> socket.socket:
        """The listener of its way out ("egress"), or for its sidecar ("sidecar"); for the caller to close."""
        return self.fork.listeners.pop(name)

    def printed(self, most: int) -> bytes:
        """The end of its log; empty when it did not come so far."""
        if self._log is None:
            return b""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, most, max(0, size - most))

    def let_go(self) -> None:
        """It has an owner now, and has told all that we wanted to know.

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
        await self._over()
        if self._hearing:
            self._hearing.cancel()
            # It may have ended with an error: one that was made ahead, and died before it was needed.
            await asyncio.gather(self._hearing, return_exceptions=True)
        self.fork.channel.close()
        self._close_log()
        for listener in self.fork.listeners.values():
            listener.close()
        if self.owns_group:
            await _remove(self.group)

    async def _over(self) -> None:
        """Return when none of its processes is left."""
        try:
            async with asyncio.timeout(_DIES):
                await self.fork.over()
        except TimeoutError:
            # The kernel waits until all of its pid namespace is collected. Code of the author's that was loaded
            # ahead can have started something there, and not collect it, until it is ended itself.
            logger.warning("an instance does not end after %g s; ending what it was forked from", _DIES)
            self.fork.zygote.close()
            await self.fork.over()


class Spares:
    """Makes spare instances when they are needed, and keeps some ready where it was told to."""

    def __init__(self, zygotes: Zygotes, cgroups: Cgroups, refill: Callable[[], None]) -> None:
        """`refill` makes ahead, in the background, what else an instance needs."""
        self._zygotes = zygotes
        self._cgroups = cgroups
        self._refill_others = refill
        self._wanted: dict[Recipe, int] = {}
        self._ready: dict[Recipe, deque[NativeInstance]] = {}
        self._filling: set[Recipe] = set()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def take(self, recipe: Recipe) -> NativeInstance:
        """One that is ready, else a new one."""
        ready = self._ready.get(recipe)
        while ready:
            instance = ready.popleft()
            # The create that took it has the processor first; but the next one is not to wait when none is left.
            asyncio.get_running_loop().call_later(_UNDISTURBED if ready else 0, self._changed.set)
            if not instance.fork.is_over:
                return instance
            await instance.end()
        if self._task is None:
            self._task = asyncio.create_task(kept_up("making instances ahead", self._refill))
        asyncio.get_running_loop().call_later(_UNDISTURBED, self._changed.set)
        return await self.make(recipe)

    async def make(
        self, recipe: Recipe, *, within: ControlGroup | None = None, ahead: bool = False
    ) -> NativeInstance:
        """A new one, in its control groups. On failure nothing is left.

        With `within`, in the groups of another, which stay that one's. With `ahead` it is not assigned at once.
        """
        zygote = await self._zygotes.get(recipe.kind, recipe.zygote_memory_bytes)
        forking = zygote.fork(recipe.request())
        limits = recipe.limits
        try:
            # While the zygote forks:
            group = within or self._cgroups.make(
                f"instance-{owners.own()}-{secrets.token_hex(8)}",
                cpus=limits.cpus,
                memory_bytes=limits.memory_bytes,
                pids=limits.pids,
            )
        except BaseException:
            _drop(forking, zygote)
            raise
        try:
            fork = await asyncio.shield(forking)
        except BaseException:
            _drop(forking, zygote)
            if within is None:
                await _remove(group)
            raise
        instance = NativeInstance(fork, group, owns_group=within is None)
        try:
            with contextlib.suppress(ProcessLookupError):  # it has ended already, and its channel will tell
                group.attach(fork.pid)
            with contextlib.suppress(OSError):
                fork.channel.send(protocol.BE_SPARE if ahead else protocol.GO)
        except BaseException:
            await instance.end()
            raise
        return instance

    # Made ahead

    def keep(self, recipe: Recipe, wanted: int) -> None:
        """Have so many ready from now on."""
        if wanted:
            self._wanted[recipe] = wanted
        else:
            self._wanted.pop(recipe, None)
        if self._task is None:
            self._task = asyncio.create_task(kept_up("making instances ahead", self._refill))
        self._changed.set()

    def ready(self) -> Mapping[Recipe, int]:
        """How many wait to be assigned, and for nothing else."""
        return {recipe: sum(instance.is_prepared for instance in spares) for recipe, spares in self._ready.items()}

    async def close(self) -> None:
        self._wanted.clear()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        for spares in self._ready.values():
            await asyncio.gather(*(instance.end() for instance in spares))
        self._ready.clear()

    async def _refill(self) -> None:
        async with Tasks() as tasks:
            while True:
                self._changed.clear()
                await self._drop_surplus()
                # Each apart: an environment that cannot be loaded, or takes long, keeps no other waiting.
                for recipe in self._wanted.keys() - self._filling:
                    self._filling.add(recipe)
                    tasks.create_task(self._fill(recipe))
                await asyncio.to_thread(self._cgroups.refill)
                await asyncio.to_thread(self._refill_others)
                await self._changed.wait()

    async def _drop_surplus(self) -> None:
        for recipe in [*self._ready]:
            spares = self._ready[recipe]
            while len(spares) > self._wanted.get(recipe, 0):
                last = spares[-1]
                await last.end()  # only then forgotten: `close` must find it
                if last in spares:  # others may have come or gone meanwhile
                    spares.remove(last)
            if not spares and recipe not in self._wanted and recipe not in self._filling:
                del self._ready[recipe]

    async def _fill(self, recipe: Recipe) -> None:
        """Make as many as are wanted of one kind."""
        try:
            spares = self._ready.setdefault(recipe, deque())
            has_made = False
            while len(spares) < self._wanted.get(recipe, 0):
                instance = await self.make(recipe, ahead=True)
                instance.hear_ahead()
                spares.append(instance)
                has_made = True
            if has_made:
                # What they are made of was used up, and fewer may be wanted since. Only where one was made: a
                # round that finds all in place must be the last.
                self._changed.set()
        except (AEnvError, OSError) as error:
            logger.warning("no spare instance could be made ahead: %s", error)
            asyncio.get_running_loop().call_later(_RETRY, self._changed.set)
        finally:
            self._filling.discard(recipe)


async def _remove(group: ControlGroup) -> None:
    """Remove it: at once as a rule, else in a thread, since its last process may take a while."""
    try:
        group.remove(timeout=0)
    except OSError:
        await asyncio.to_thread(group.remove)


def _drop(forking: asyncio.Future[ForkedProcess], zygote: Zygote) -> None:
    """It is not wanted any more: without its channel a spare instance goes away by itself.

    What never answers would keep what we hold for the answer, and is let go.
    """

    def close(done: asyncio.Future[ForkedProcess]) -> None:
        late.cancel()
        if not done.cancelled() and not done.exception():
            fork = done.result()
            fork.kill()
            fork.channel.close()
            os.close(fork.log)
            for listener in fork.listeners.values():
                listener.close()

    late = asyncio.get_running_loop().call_later(_ANSWERS, zygote.close)
    forking.add_done_callback(close)
