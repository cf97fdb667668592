"""Warmth: how many blank instances the engine keeps ready for each environment.

At least as many as the environment or an operator asks for; more while many are created at once, as many as came
together; fewer again as that is over; and never more in all than their share of memory holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..config import Project
from ..engines.base import Engine, InstanceSpec, Warm
from ..errors import AEnvError, Unsupported
from ..models import CreateInstance
from . import admission
from .catalog import Catalog
from .creations import Place
from .sweeper import Clock

logger = logging.getLogger("aenv.instances.warmth")

BLANK_BYTES = 4 << 20  # what one takes, measured with 1,000 of them
_TOGETHER = 0.1  # seconds: creates that come within find nobody to refill the pool between them
_HALF_LIFE = 30.0  # seconds after which half as many are expected
_LOOK_AGAIN = 1.0  # seconds, only while more are kept than were asked for


@dataclass
class _Pool:
    """The blank instances of one environment."""

    spec: InstanceSpec
    least: int
    kept: int = 0
    """What the engine was last told."""
    expected: float = 0.0
    """How many may be wanted at once, as of the last create."""
    recent: deque[float] = field(default_factory=deque)
    """When the last ones were created, for as long as they count as together."""

    def created(self, now: float) -> None:
        expected = self.expects(now)
        while self.recent and self.recent[0] < now - _TOGETHER:
            self.recent.popleft()
        self.recent.append(now)
        self.expected = max(expected, len(self.recent))

    def expects(self, now: float) -> float:
        return self.expected * 0.5 ** ((now - self.recent[-1]) / _HALF_LIFE) if self.recent else 0.0

    def is_over(self, now: float) -> bool:
        return not self.kept and not self.least and self.expects(now) < 0.5

    def wanted(self, now: float) -> int:
        expected = round(self.expects(now))
        return max(self.least, expected if expected > 1 else 0)  # one alone is no rate


class Warmth:
    """`run` tells the engine; where it cannot keep instances warm, nothing happens."""

    def __init__(self, engine: Engine, catalog: Catalog, place: Place, memory_bytes: int, clock: Clock) -> None:
        self._name = engine.name
        self._engine = engine if isinstance(engine, Warm) else None
        self._catalog = catalog
        self._place = place
        self._most = memory_bytes // BLANK_BYTES
        self._now = clock
        self._pools: dict[str, _Pool] = {}
        self._retired: list[_Pool] = []
        """Those of environments whose code has changed meanwhile."""
        self._changed = asyncio.Event()
        self._telling = asyncio.Lock()

    async def begin(self, projects: Iterable[Project]) -> None:
        """Warm those whose config.json says so. One that cannot be prepared is left cold, with a warning."""
        for project in projects:
            if self._engine and project.deploy.get("warmPool"):
                try:
                    self._keep(await self._spec(project), project)
                except AEnvError as error:
                    logger.warning("%s is not kept warm: %s", project.ref, error.message)
        self._changed.set()

    async def ask(self, project: Project, count: int) -> tuple[int, int]:
        """Keep at least `count` from now on. How many are kept, which memory may limit, and how many are ready."""
        if self._engine is None:
            raise Unsupported(f"the {self._name} engine keeps no instances warm")
        pool = self._keep(await self._spec(project), project)
        pool.least = count
        await self.settle()
        self._changed.set()
        return pool.kept, self.ready().get(str(project.ref), 0)

    def ready(self) -> Mapping[str, int]:
        """How many there are now, by environment."""
        return self._engine.warm() if self._engine else {}

    def created(self, spec: InstanceSpec, project: Project) -> None:
        """One that a blank instance can be filled in for has been asked for."""
        if self._engine:
            self._keep(spec, project).created(self._now())
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            await self.settle()
            fades = any(pool.kept > pool.least for pool in self._pools.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN if fades else None):
                    await self._changed.wait()

    async def close(self) -> None:
        """Let all go."""
        self._most = 0
        await self.settle()

    async def settle(self) -> None:
        """Tell the engine what has changed."""
        async with self._telling:
            retired, self._retired = self._retired, []
            for pool, count in [*((pool, 0) for pool in retired), *self._shares()]:
                if pool.kept != count:
                    await self._tell(pool, count)
            self._pools = {ref: pool for ref, pool in self._pools.items() if not pool.is_over(self._now())}

    async def _tell(self, pool: _Pool, count: int) -> None:
        assert self._engine
        pool.kept = count
        try:
            await self._engine.keep_warm(pool.spec, count)
        except Exception:  # boundary: the engine; creates do without
            logger.exception("the %s engine could not keep %s warm", self._name, pool.spec.environment)

    def _keep(self, spec: InstanceSpec, project: Project) -> _Pool:
        ref, blank = str(project.ref), replace(spec, id="", environment_variables={}, arguments=())
        pool = self._pools.get(ref)
        if pool is None or pool.spec != blank:
            if pool:
                self._retired.append(pool)
            least = pool.least if pool else project.deploy.get("warmPool", 0)
            pool = self._pools[ref] = _Pool(blank, least)
        return pool

    async def _spec(self, project: Project) -> InstanceSpec:
        spec = admission.spec_for("", CreateInstance(env_name=str(project.ref)), project, self._place.rules)
        layer = await self._catalog.layer(project)
        place = self._place
        return replace(spec, start_timeout=place.start_timeout, layer=layer, keep_history=place.keep_history)

    def _shares(self) -> list[tuple[_Pool, int]]:
        """What each gets: first what was asked for, then what is expected, the most needed first."""
        left, shares = self._most, {}
        for ref, pool in self._pools.items():
            shares[ref] = min(pool.least, left)
            left -= shares[ref]
        wanted = {ref: pool.wanted(self._now()) for ref, pool in self._pools.items()}
        for ref in sorted(wanted, key=lambda ref: -wanted[ref]):
            more = min(max(0, wanted[ref] - shares[ref]), left)
            shares[ref] += more
            left -= more
        return [(self._pools[ref], count) for ref, count in shares.items()]
