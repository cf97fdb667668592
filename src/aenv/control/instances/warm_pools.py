"""Warm pools: how many spare instances the engine keeps ready for each environment.

At least as many as the environment or an operator asks for; more while many are created at once, as many as came
together; fewer again as that is over; and never more in all than their share of memory holds.

Where there are accounts, no spare instance is for two of them: each account that has used the environment lately
has a pool of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...base import wire
from ...base.config import Project
from ...base.errors import AEnvError, Unsupported
from ...base.models import CreateInstance
from ...engines.base import Engine, InstanceSpec, Warm
from . import admission
from .catalog import Catalog
from .specs import Conditions, instance_spec, spare_spec
from .sweeper import Clock
from .this_gateway import ThisGateway

logger = logging.getLogger("aenv.control.instances.warm_pools")

SPARE_BYTES = 4 << 20  # what one takes, measured with 1,000 of them
_TOGETHER = 0.1  # seconds: between creates that come within this time the pool is not refilled
_HALF_LIFE = 30.0  # seconds after which half as many are expected
_LATELY = 600.0  # seconds in which an account that has created an instance may want another
_LOOK_AGAIN = 1.0  # seconds, only while more are kept than were asked for


@dataclass
class _Pool:
    """The spare instances of one environment, for one tenant."""

    spec: InstanceSpec
    asked: int
    """How many an operator or the environment wants, at least."""
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

    def least(self, now: float) -> int:
        is_used = not self.spec.tenant or bool(self.recent and now - self.recent[-1] < _LATELY)
        return self.asked if is_used else 0

    def is_over(self, now: float) -> bool:
        return not self.kept and not self.least(now) and self.expects(now) < 0.5

    def wanted(self, now: float) -> int:
        expected = round(self.expects(now))
        return max(self.least(now), expected if expected > 1 else 0)  # one alone does not make a rate


class WarmPools:
    """`run` tells the engine; where it cannot keep instances warm, nothing happens."""

    def __init__(
        self, engine: Engine, catalog: Catalog, here: ThisGateway, memory_bytes: int, clock: Clock
    ) -> None:
        self._name = engine.name
        self._engine = engine if isinstance(engine, Warm) else None
        self._catalog = catalog
        self._here = here
        self._most = memory_bytes // SPARE_BYTES
        self._now = clock
        self._pools: dict[tuple[str, str], _Pool] = {}
        """By environment and tenant."""
        self._asked: dict[str, int] = {}
        """What operators have asked for, by environment."""
        self._retired: list[_Pool] = []
        """Those of environments whose code has changed meanwhile."""
        self._changed = asyncio.Event()
        self._telling = asyncio.Lock()

    async def begin(self, projects: Iterable[Project]) -> None:
        """Warm those whose config.json says so. One that cannot be prepared is left cold, with a warning."""
        for project in projects:
            if self._engine and project.deploy.warm_pool:
                try:
                    self._keep(await self._spec(project), project)
                except (AEnvError, OSError, ValueError) as error:
                    logger.warning("%s is not kept warm: %s", project.ref, error)
        self._changed.set()

    async def ask(self, project: Project, count: int) -> tuple[int, int]:
        """Keep at least `count` from now on. How many are kept, which memory may limit, and how many are ready."""
        if self._engine is None:
            raise Unsupported(f"the {self._name} engine keeps no instances warm")
        ref = str(project.ref)
        self._asked[ref] = count
        pool = self._keep(await self._spec(project), project)
        for (name, _), each in self._pools.items():
            if name == ref:
                each.asked = count
        await self.settle()
        self._changed.set()
        return pool.kept, self.ready().get(ref, 0)

    def ready(self) -> Mapping[str, int]:
        """How many there are now, by environment."""
        return self._engine.warm() if self._engine else {}

    def created(self, spec: InstanceSpec, project: Project) -> None:
        """One that a spare instance can be filled in for has been asked for."""
        if self._engine:
            self._keep(spec, project).created(self._now())
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            await self.settle()
            fades = any(pool.kept > pool.least(self._now()) or pool.spec.tenant for pool in self._pools.values())
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
            self._pools = {key: pool for key, pool in self._pools.items() if not pool.is_over(self._now())}

    async def _tell(self, pool: _Pool, count: int) -> None:
        assert self._engine
        pool.kept = count
        try:
            await self._engine.keep_warm(pool.spec, count)
        except Exception:  # boundary: the engine; creates do without
            logger.exception("the %s engine could not keep %s warm", self._name, pool.spec.environment)

    def _keep(self, spec: InstanceSpec, project: Project) -> _Pool:
        ref, spare = str(project.ref), spare_spec(spec)
        key = ref, spec.tenant
        pool = self._pools.get(key)
        if pool is None or pool.spec != spare:
            if pool:
                self._retired.append(pool)
            pool = self._pools[key] = _Pool(spare, self._asked.get(ref, project.deploy.warm_pool))
        return pool

    async def _spec(self, project: Project) -> InstanceSpec:
        here, ref = self._here, str(project.ref)
        checked = admission.check_request(CreateInstance(env_name=ref), project, here.rules)
        conditions = Conditions(here.start_timeout, here.keep_history)
        id = wire.new_instance_id(project.name)
        return instance_spec(id, checked, await self._catalog.prepare(project), conditions)

    def _shares(self) -> list[tuple[_Pool, int]]:
        """What each gets: first what was asked for, then what is expected, the most needed first."""
        now = self._now()
        left, shares = self._most, {}
        for key, pool in self._pools.items():
            shares[key] = min(pool.least(now), left)
            left -= shares[key]
        wanted = {key: pool.wanted(now) for key, pool in self._pools.items()}
        for key in sorted(wanted, key=lambda key: -wanted[key]):
            more = min(max(0, wanted[key] - shares[key]), left)
            shares[key] += more
            left -= more
        return [(self._pools[key], count) for key, count in shares.items()]
