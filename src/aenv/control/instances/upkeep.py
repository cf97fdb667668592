"""Upkeep: what gateways do for instances whose gateway has ended, and for records that are over.

When a gateway starts alone on its home, whatever runs there is taken over or ended at once. Later, the one
gateway of a node that holds the lease for it looks every ten seconds: after instances whose own gateway has ended,
and after records that are needed no more. Every gateway compares what it looks after with what the store says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set

from ...base.errors import Unavailable
from ...base.wire import EnvStatus
from ...engines.base import Address, Engine, Leftovers, SharedByGateways, Sweeps
from ..stores.base import Coordination
from .catalog import Catalog
from .ledger import Ledger
from .nodes import Nodes, is_free
from .records import Record
from .states import State
from .strays import ReplicaIds, Strays
from .supervisor import Supervisor
from .transitions import Transitions

logger = logging.getLogger("aenv.control.instances.upkeep")

_PERIOD = 10.0
_LEASE = 3 * _PERIOD
_COLLECT_PERIOD = 6 * 3600.0


class Upkeep:
    """For the instances of one node."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        ledger: Ledger,
        transitions: Transitions,
        supervisor: Supervisor,
        coordination: Coordination,
        replicas: ReplicaIds,
        *,
        node: str,
        gateway: str,
    ) -> None:
        """`replicas`: those of services, which run too and are not instances."""
        self._nodes = Nodes(ledger, transitions, coordination, node, gateway)
        self._engine = engine
        self._catalog = catalog
        self._ledger = ledger
        self._transitions = transitions
        self._supervisor = supervisor
        self._coordination = coordination
        self._node = node
        self._gateway = gateway
        self._replicas = replicas
        self._strays = (
            Strays(engine, ledger, supervisor, replicas) if isinstance(engine, SharedByGateways) else None
        )
        self._collected = time.monotonic()
        self._missing: set[str] = set()
        """Gateways that kept no lease at the last round."""

    async def take_over_all(self, running: Mapping[str, Address], others: set[str]) -> None:
        """For a gateway that is alone on its node: adopt what runs, end and forget the rest.

        `others` run too and are not instances: the replicas of services.
        """
        known: set[str] = set()
        living = await self._ledger.living_on(self._node)
        known.update(record.id for record in living)
        await _each(
            [record for record in living if record.id not in self._supervisor],
            lambda record: self._take_over(record, running.get(record.id)),
        )
        self._supervisor.end_orphans()
        present = [*running, *(await self._engine.leftovers() if isinstance(self._engine, Leftovers) else ())]
        strays = [id for id in present if id not in known and id not in others]
        if strays and self._strays:  # another gateway may have started meanwhile
            recorded, replicas = await self._ledger.all_of(strays), await self._replicas()
            strays = [id for id in strays if not _lives(recorded[id]) and id not in replicas]
        outcomes = await asyncio.gather(*(self._engine.destroy(id) for id in strays), return_exceptions=True)
        for id, outcome in zip(strays, outcomes, strict=True):
            if outcome:  # boundary: the engine; one that resists must not keep the gateway from serving the others
                logger.error("could not end %s, which has no record: %s", id, outcome)
        adopted = len(self._supervisor)
        if adopted or strays:
            logger.info("took over %d instances, and ended %d without a record", adopted, len(strays))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.tend()
            except Unavailable as error:
                logger.warning("upkeep waits: %s", error)
            except Exception:  # boundary: the engine, and files that environments can reach
                logger.exception("upkeep failed; the next round is in %.0f s", _PERIOD)
            await asyncio.sleep(_PERIOD)

    async def live(self) -> None:
        """Until cancelled: give signs of life, however long a round of upkeep takes."""
        while True:
            await asyncio.sleep(_PERIOD)
            with contextlib.suppress(Unavailable):  # the rounds log it
                await self.announce()

    async def announce(self) -> None:
        """Tell other gateways that this one lives; to be done before it makes anything."""
        await self._coordination.lease(f"gateway {self._gateway}", self._gateway, _LEASE)
        await self._nodes.announce()

    async def tend(self) -> None:
        """One round."""
        await self.announce()
        await self._transitions.save_rest()
        leads = await self._coordination.lease(f"upkeep {self._node}", self._gateway, _LEASE)
        # Read once in each round: there may be thousands.
        living = await self._ledger.living_on(self._node) if leads else []
        await self._reconcile({record.id for record in living})
        if leads:
            await self._lead(living)
        # Gateways that share an engine have home folders of their own.
        if (leads or self._strays) and self._collected + _COLLECT_PERIOD < time.monotonic():
            await self._collect()
        await self._nodes.tend()
        async for records in self._ledger.due(self._node):
            await _each(
                (record for record in records if record.is_live), lambda record: self._tend_due(record, leads)
            )
            if leads:
                await self._forget([record for record in records if not record.is_live])

    async def _reconcile(self, living: Set[str]) -> None:
        """Record again what the store has lost, and end what the store says has ended.

        That is so where this node was given up while it could not reach the store. Instances in `living` need no
        look: the store has just said that they live.
        """
        known = [id for id, instance in self._supervisor.items() if instance.state is State.RUNNING]
        for id, record in (await self._ledger.all_of([id for id in known if id not in living])).items():
            instance = self._supervisor.get(id)
            if instance is None or not instance.is_live:
                continue
            if record is None:
                await self._supervisor.write_again(instance)
            elif not record.is_live:
                self._supervisor.start_ending(instance, record.reason or "", record.status)

    async def _tend_due(self, record: Record, leads: bool) -> None:
        instance = self._supervisor.get(record.id)
        if instance and record.expires_at < instance.record.expires_at:  # shortened through another gateway
            self._supervisor.update(instance, record)
        elif instance or not leads or record.status is not EnvStatus.RUNNING:
            return
        elif await self._is_missing(record.gateway):
            # At once, unlike one whose time is not over: should its gateway live after all, it does the same.
            await self._supervisor.take_over(record, record.address)

    async def _forget(self, records: list[Record]) -> None:
        """All that are over in each round: they are forgotten as fast as instances end, however fast that is."""
        try:
            if records:
                await self._ledger.forget_all(records)
        except Unavailable:
            raise
        except Exception:  # boundary: what the store holds of one of them
            await _each(records, self._ledger.forget)

    async def _lead(self, living: list[Record]) -> None:
        """What one gateway does for all of the node, with the records of its instances that live."""
        await self._adopt([record for record in living if record.id not in self._supervisor])
        if self._strays:
            await self._strays.tend({record.id for record in living})
        if isinstance(self._engine, Sweeps):
            await self._engine.sweep()

    async def _collect(self) -> None:
        """Remove from the home folder what no instance of this node needs."""
        self._collected = time.monotonic()
        living = await self._ledger.living_on(self._node)
        folders = {name for each in living for name in (each.code, each.requirements, each.runtime)}
        await self._catalog.collect(folders)

    async def resign(self) -> None:
        """Let others take over at once."""
        with contextlib.suppress(Unavailable):
            await self._coordination.lease(f"upkeep {self._node}", self._gateway, 0)
            await self._coordination.lease(f"gateway {self._gateway}", self._gateway, 0)
            await self._nodes.resign()

    async def _adopt(self, records: list[Record]) -> None:
        """Of instances that others look after, take over those whose gateway has ended."""
        gateways = {record.gateway for record in records} - {self._gateway}
        missing = {gateway for gateway in gateways if await self._is_missing(gateway)}
        # Twice in a row: when the store comes back, all leases are over, and others renew theirs in a moment.
        ended, self._missing = missing & self._missing | {self._gateway}, missing
        orphans = [record for record in records if record.gateway in ended]
        running = await self._engine.running() if orphans else {}
        await _each(orphans, lambda record: self._take_over(record, running.get(record.id)))
        self._supervisor.end_orphans()

    async def _is_missing(self, gateway: str) -> bool:
        return await is_free(self._coordination, f"gateway {gateway}", self._gateway)

    async def _take_over(self, record: Record, address: Address | None) -> None:
        if address and record.status is EnvStatus.RUNNING:
            await self._supervisor.take_over(record, address)
            return
        await self._supervisor.destroy_quietly(record.id)
        if record.status is EnvStatus.CREATING:
            record.begins_again = True
            how = EnvStatus.FAILED, "the gateway ended while it was starting"
        elif record.expires_at <= time.time():
            how = EnvStatus.TERMINATED, record.expiry
        else:
            how = EnvStatus.FAILED, "it ended while no gateway looked after it"
        await self._transitions.bury(record, *how)


def _lives(record: Record | None) -> bool:
    return record is not None and record.is_live


async def _each(records: Iterable[Record], work: Callable[[Record], Awaitable[None]]) -> None:
    """One after the other; what goes wrong with one record is logged, and keeps none of the others waiting."""
    for record in records:
        try:
            await work(record)
        except Unavailable:  # the store does not answer: not for the others either
            raise
        except Exception:  # boundary: the engine, and what the store holds of one instance
            logger.exception("upkeep of instance %s failed", record.id)
