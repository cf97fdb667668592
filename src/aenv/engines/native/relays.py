"""Relays: how the host reaches servers in an instance that has a network of its own, and how such an instance gets
its way out back after a restart of the gateway.

The programs that do it are `relay` and `listen` of `aenv.isolation.sandbox`. What they are given is a listener and
a pidfd, so that there is no moment in which a number could mean another process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import string
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from ...base.addresses import Origin
from ...base.errors import AEnvError, NotFound, TooManyRequests
from ...isolation.egress import PORT as EGRESS_PORT
from ...isolation.egress import Egress, EgressPolicy
from ...isolation.sandbox import interpreter
from .. import ports, proc
from ..descriptors import readable
from ..folder import InstanceFolder, bind
from .members import members

logger = logging.getLogger("aenv.engines.native")

IDLE = 60.0  # seconds without a connection after which a relay ends
_MAX_PORTS = 16  # of an instance at a time: each is a process
_HELPERS = 4  # at a time
_HELPER_TIMEOUT = 10.0
_QUEUE = 128
_random = SystemRandom()


class Relays:
    """The relays of an engine; one for each port of an instance that a caller asked for."""

    def __init__(self, *, idle: float = IDLE) -> None:
        self._idle = idle
        self._relays: dict[tuple[str, int], _Relay] = {}
        self._helpers = asyncio.Semaphore(_HELPERS)

    async def origin(self, folder: InstanceFolder, leader: proc.Process, port: int) -> Origin | None:
        """Where a port of the instance can be reached; None when nothing in it listens there."""
        found = await asyncio.to_thread(_look, folder, leader, port)
        # Asked after the tables were read, so they were its own; and from here on `stop` finds the relay.
        if found is None or not leader.runs():
            return None
        if isinstance(found, Origin):
            return found
        relay = self._relays.get((folder.id, port))
        if relay is None or relay.is_over:
            relay = self._start(found, folder.id, leader, port)
        relay.asked_at = time.monotonic()
        return Origin("localhost", socket=str(relay.path))

    def _start(self, place: Path, id: str, leader: proc.Process, port: int) -> _Relay:
        if sum(own == id for own, _ in self._relays) >= _MAX_PORTS:
            raise TooManyRequests(
                f"{_MAX_PORTS} ports of instance {id!r} are open already; one is closed "
                f"when it was not used for {self._idle:g} s"
            )
        relay = _Relay(place, leader, port, self._idle)
        key = id, port
        self._relays[key] = relay

        def forget(_: object) -> None:
            if self._relays.get(key) is relay:
                del self._relays[key]

        relay.task.add_done_callback(forget)
        return relay

    async def stop(self, id: str) -> None:
        """Return when nothing of the instance's relays is left. To be called when the instance has ended."""
        await self._stop([relay for (own, _), relay in self._relays.items() if own == id])

    async def close(self) -> None:
        """End all."""
        await self._stop([*self._relays.values()])

    async def _stop(self, relays: Sequence[_Relay]) -> None:
        for relay in relays:
            relay.end()
        if relays:
            await asyncio.wait({relay.task for relay in relays})

    async def listener(self, leader: proc.Process, port: int) -> socket.socket:
        """A socket that listens on 127.0.0.1 in the network of a process; no other process has a copy of it.

        NotFound when the process has ended, OSError when it cannot be, as when the port is taken.
        """
        async with self._helpers, asyncio.timeout(_HELPER_TIMEOUT):
            ours, theirs = socket.socketpair()
            with ours:
                with theirs, leader.opened() as process:
                    if process is None:
                        raise NotFound(f"no process {leader.pid} to listen for: it has ended")
                    child = _spawn("aenv.isolation.sandbox.listen", theirs.fileno(), process, port)
                try:
                    await readable(ours.fileno())
                    answer, handed, _, _ = socket.recv_fds(ours, 16, 1)
                except BaseException:
                    child.kill()
                    raise
                finally:
                    failure = await _finished(child)
        if handed:
            os.set_inheritable(handed[0], False)  # what comes by a socket is, whatever it was before
            return socket.socket(fileno=handed[0])
        if answer:
            number = int(answer)
            raise OSError(number, f"{os.strerror(number).lower()}: a listener on port {port} of an instance")
        raise OSError(errno.EIO, f"no listener on port {port} of an instance: {failure}")


async def reopen(relays: Relays, egress: Egress, name: str, folder: InstanceFolder, leader: proc.Process) -> None:
    """Let an instance, or a sidecar, that another engine object has made out again, to where it may go.

    `name` is what it is called in the egress.

    Does nothing for one that has its way out, or shall have none. When it fails, the instance stays without.
    """
    hosts = folder.read_state().egress
    if hosts is None or egress.serves(name):
        return
    try:
        policy = EgressPolicy.parse(hosts)
        listener = await relays.listener(leader, EGRESS_PORT)
    except (AEnvError, OSError, TimeoutError) as error:
        logger.warning("instance %r stays without its way out: %s", folder.id, error)
        return
    if egress.serves(name) or not leader.runs():
        listener.close()
    else:
        egress.serve(name, listener, policy)


class _Relay:
    """A socket, and the process that serves it; its task ends when neither is left."""

    def __init__(self, place: Path, leader: proc.Process, port: int, idle: float) -> None:
        self._leader = leader
        self._port = port
        self._idle = idle
        self._is_stopped = False
        self.asked_at = time.monotonic()
        self._listener = socket.socket(socket.AF_UNIX)
        # As long as the name of the instance's own socket, which was found to fit, and never that name.
        self.path = place / "".join(_random.choices(string.ascii_uppercase, k=len("socket")))
        try:
            bind(self._listener, self.path)
            self._listener.listen(_QUEUE)
            self._child = self._spawn()
        except BaseException:
            self._close()
            raise
        self.task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        return self.task.done()

    def end(self) -> None:
        """End it at once; its task tells when that has happened."""
        self._is_stopped = True
        self._child.kill()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._leader.opened() as process:
            if process is None:
                raise NotFound(f"port {self._port} not found: its instance has ended")
            return _spawn("aenv.isolation.sandbox.relay", self._listener.fileno(), process, self._port, self._idle)

    async def _run(self) -> None:
        try:
            while True:
                failure = await _finished(self._child)
                if self._is_stopped or not self._leader.runs():
                    return
                if failure:
                    logger.warning("the relay to port %d ended: %s", self._port, failure)
                    return
                if not self._is_wanted():
                    return
                self._child = self._spawn()
        except (NotFound, OSError) as error:
            logger.warning("no relay to port %d: %s", self._port, error)
        finally:
            self._close()

    def _is_wanted(self) -> bool:
        """Whether a caller has just come, or was just told where to come."""
        if time.monotonic() - self.asked_at < self._idle:
            return True
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return bool(poll.poll(0))

    def _close(self) -> None:
        self._listener.close()
        self.path.unlink(missing_ok=True)


def _spawn(module: str, first: int, process: int, *arguments: object) -> subprocess.Popen[bytes]:
    """A program that is given two descriptors, and has no others, nor any variable of ours."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(first), str(process), *map(str, arguments)],
        env=interpreter.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(first, process),
        start_new_session=True,
        cwd="/",
    )


async def _finished(child: subprocess.Popen[bytes]) -> str:
    """Return when it has ended: why, when it did not mean to."""
    assert child.stderr
    try:
        await proc.ended(child.pid)
    finally:
        if proc.start_time(child.pid) is not None:
            child.kill()
        code = child.wait()
        with child.stderr as printed:
            text = os.read(printed.fileno(), 1 << 16).decode(errors="replace").strip()
    return "" if code == 0 else (text.splitlines()[-1] if text else f"exit code {code}")


def _look(folder: InstanceFolder, leader: proc.Process, port: int) -> Origin | Path | None:
    """Where the port is, when it is on the host; else the place for a socket. None when nothing listens."""
    try:
        if os.path.samefile(f"/proc/{leader.pid}/ns/net", "/proc/self/ns/net"):
            return ports.find(port, members(leader))
    except OSError:  # it has ended
        return None
    state = folder.read_state()
    own = [relay.port for relay in (state.model, state.gateway) if relay]
    if (state.egress is not None and port == EGRESS_PORT) or port in own:
        return None  # the engine's own
    # Beside the instance's own socket: in its folder, or elsewhere where the path of that is too long.
    return folder.socket.parent if ports.answers(port, leader.pid) else None
