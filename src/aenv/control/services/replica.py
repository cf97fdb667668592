"""One replica of a service: an instance that is started again whenever it ends, or is not healthy for too long.

It keeps its id however often that happens, so a restart needs nothing but the engine: no store, no other gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...base import logs, mcp
from ...base.addresses import Origin
from ...base.errors import AEnvError, NetworkError, NotFound, TooLarge, Unsupported
from ...base.http1 import Pool
from ...base.supervision import Tasks, first_of
from ...engines.base import Engine, InstanceSpec, NoticesEnds, Ports
from ..instances.secret_variables import masked_create

logger = logging.getLogger("aenv.control.services")

_MAX_FAILURES = 3  # checks in a row that a replica which was healthy may fail
_MAX_HEALTH_BYTES = 64 << 10  # what takes long to parse would hold up everything else


@dataclass(frozen=True)
class Pace:
    """How patient supervision is, in seconds."""

    first_delay: float = 0.1
    """Before a replica that ended is started again; doubled each time, up to `longest_delay`."""
    longest_delay: float = 30.0
    steady_after: float = 60.0
    """A replica that was healthy for so long starts again with the first delay."""
    check_every: float = 5.0
    recheck_after: float = 1.0
    """Between checks of a replica that is not healthy."""
    check_timeout: float = 5.0
    port_within: float = 5.0
    """For an environment's own server to listen, after its runtime serves."""
    drain: float = 300.0
    """For what is under way in a replica that must go."""
    drain_alone: float = 30.0
    """The same, where no replica serves meanwhile."""
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Means:
    engine: Engine
    pool: Pool
    home: Path
    start_timeout: float
    pace: Pace


class Delays:
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._next = pace.first_delay

    def after(self, healthy_for: float) -> float:
        """The wait that follows a life in which it was healthy for so long."""
        if healthy_for >= self._pace.steady_after:
            self._next = self._pace.first_delay
        delay = self._next
        self._next = min(2 * delay, self._pace.longest_delay)
        return delay


class Replica:
    """One place in a service. `changed` is called whenever it begins or ceases to serve, or fails to."""

    def __init__(
        self,
        id: str,
        generation: int,
        means: Means,
        spec: Callable[[], Awaitable[InstanceSpec]],
        changed: Callable[[], None],
        origin: Origin | None = None,
        port: int | None = None,
    ) -> None:
        """`port`: where requests go that a server of the environment itself shall answer."""
        self.id = id
        self.generation = generation
        self.origin = origin
        """Where the runtime of its instance serves; None while it has none."""
        self.port_problem: str | None = None
        """Why its runtime is called, although a port was asked for."""
        self.busy = 0
        self.turn = 0
        """When it was last chosen, for those who choose."""
        self.reason: str | None = None
        """What is, or was last, wrong with it."""
        self.has_failed = False
        """Whether its last start came to nothing."""
        self._means = means
        self._spec = spec
        self._changed = changed
        self._is_healthy = False
        self._healthy_since: float | None = None
        """When it first was in its present life."""
        self._port = port
        self._server: Origin | None = None
        """The environment's own server, once it was seen in this life."""
        self._is_leaving = False
        self._suspected = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def serves(self) -> bool:
        """Whether it may be given requests."""
        return self._is_healthy and not self._is_leaving

    @contextlib.contextmanager
    def used(self) -> Iterator[Origin]:
        """A request to it is under way inside."""
        origin = self._server or self.origin
        assert origin
        self.busy += 1
        self._idle.clear()
        try:
            yield origin
        finally:
            self.busy -= 1
            if not self.busy:
                self._idle.set()

    def is_at(self, origin: Origin) -> bool:
        return origin in (self.origin, self._server)

    def suspect(self) -> None:
        """A request could not be sent to it: no more of them until it has been checked."""
        if self._is_healthy:
            self._fell_ill("a request could not be sent to it")
        self._suspected.set()

    def begin(self, tasks: Tasks) -> None:
        """Look after it from now on; fine when that has begun."""
        self._task = self._task or tasks.keep(f"replica {self.id}", self._keep)

    async def stop(self, drain: float) -> None:
        """Take no more requests, let those under way end for so long, and be gone."""
        self._is_leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain):
                await self._idle.wait()
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self.destroy()

    def hurry(self) -> None:
        """While it stops: wait for nothing more."""
        self._idle.set()

    async def destroy(self) -> None:
        try:
            await self._means.engine.destroy(self.id)
        except Exception:  # boundary: the engine; what it leaves is ended when a gateway starts
            logger.exception("the %s engine could not end a replica", self._means.engine.name)

    # Its lives

    async def _keep(self) -> None:
        """Until cancelled: start, watch, clear away, wait, and start again."""
        logs.instance_id.set(self.id)
        delays = Delays(self._means.pace)
        if self.origin is None:
            await self.destroy()  # what a gateway that was killed may have left of it
        while True:
            try:
                if self.origin is None:
                    self.origin = (await masked_create(self._means.engine, await self._spec())).origin
                self.reason = await self._until_over()
            except AEnvError as error:
                self.reason = error.message
            except Exception:  # boundary: the engine, and what prepares a start
                logger.exception("the %s engine failed", self._means.engine.name)
                self.reason = f"the {self._means.engine.name} engine failed; the gateway's log says why"
            logger.info("replica down: %s", self.reason.partition("\n")[0])
            healthy_for = self._end_of_life()
            await self.destroy()
            await asyncio.sleep(delays.after(healthy_for))

    def _end_of_life(self) -> float:
        """For how long it was healthy."""
        since = self._healthy_since
        self.origin = self._server = self._healthy_since = self.port_problem = None
        self._is_healthy = False
        self.has_failed = since is None
        self._changed()
        return self._means.pace.clock() - since if since is not None else 0.0

    async def _until_over(self) -> str:
        """Why its instance is no longer of use."""
        engine = self._means.engine
        ends = [engine.ended(self.id)] if isinstance(engine, NoticesEnds) else []
        over = await first_of(*ends, self._sickness())
        return str(over.result())

    async def _sickness(self) -> str:
        """Check its health again and again; return when it has been bad for too long."""
        pace = self._means.pace
        failures = 0
        began = pace.clock()
        give_up = began + self._means.start_timeout
        while True:
            self._suspected.clear()
            problem = await self._problem()
            if problem is None and self._port:
                problem = await self._find_server(self._port, patient=pace.clock() < began + pace.port_within)
            if problem is None:
                failures = 0
                self._recovered()
            else:
                failures += 1
                self._fell_ill(problem)
                # One that has never been healthy may still be getting ready: it has the time of a start.
                never_healthy = self._healthy_since is None
                if pace.clock() >= give_up if never_healthy else failures >= _MAX_FAILURES:
                    return self.reason or problem
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace.recheck_after if problem else pace.check_every):
                    await self._suspected.wait()

    async def _find_server(self, port: int, *, patient: bool) -> str | None:
        """Send requests to the environment's own server from now on; what is wrong while it must be waited for.

        An environment that has none is called at its runtime. One that had one is not healthy without it.
        """
        engine = self._means.engine
        before, problem = self.port_problem, ""
        try:
            if not isinstance(engine, Ports):
                raise Unsupported(f"the {engine.name} engine cannot open ports of an instance")
            self._server = await engine.port(self.id, port)
        except NotFound:
            problem = f"nothing in the replica listens on port {port}"
            if self._server or patient:
                return problem
        except AEnvError as error:
            problem = error.message
        self.port_problem = f"port: {problem}; its runtime is called" if problem else None
        if before != self.port_problem:
            self._changed()
        return None

    def _recovered(self) -> None:
        if self._is_healthy:
            return
        self._is_healthy = True
        if self._healthy_since is None:
            self._healthy_since = self._means.pace.clock()
        self.has_failed = False
        self.reason = None
        self._changed()

    def _fell_ill(self, problem: str) -> None:
        self.reason = f"not healthy: {problem}"
        if self._is_healthy:
            self._is_healthy = False
            self._changed()

    async def _problem(self) -> str | None:
        """What its own health route says is wrong; None when nothing is."""
        assert self.origin
        timeout = self._means.pace.check_timeout
        try:
            async with asyncio.timeout(timeout):
                # On a connection of its own: the next caller will need one, too.
                head = [("connection", "close")]
                response = await self._means.pool.request(self.origin, "GET", "/health", head)
                body = await response.read(_MAX_HEALTH_BYTES)
        except TimeoutError:
            return f"/health did not answer within {timeout:g} s"
        except (NetworkError, TooLarge) as error:
            return error.message
        return judge(response.status, body)


def judge(status: int, body: bytes) -> str | None:
    """What a reply of `/health` says is wrong. One that leaves `status` out, but was a success, is content."""
    try:
        reply = mcp.loads(body)
    except ValueError:
        return f"/health answered {status} with something that is not JSON"
    if status != 200 or not isinstance(reply, dict) or reply.get("success") is not True:
        return f"/health answered {status}"
    data = reply.get("data")
    said = data.get("status", "healthy") if isinstance(data, dict) else "healthy"
    return None if said in ("success", "healthy") else f"/health says {str(said)[:100]!r}"
