"""The replicas of a service that its engine looks after, whichever gateways there are.

The engine is told what the record says, and starts, replaces and ends them. Every gateway of the installation
does the same, so each can send requests to them, and none needs to be told when another one has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...base.errors import AEnvError
from ...base.supervision import first_of
from ...engines.base import Address, InstanceSpec, KeepsServices, ServiceReplica, WantedService
from . import storage
from .replica import Means, Replica
from .replicas import RUNTIME_PORT, Replicas, Spec
from .service_records import ServiceRecord, ServiceRecords


class EngineReplica(Replica):
    """A replica as its engine tells of it."""

    def __init__(self, told: ServiceReplica, means: Means, changed: Callable[[], None], port: int | None) -> None:
        super().__init__(told.id, told.generation, means, _no_spec, changed, None, port)
        self._began = means.pace.clock()
        self._ill_until = 0.0

    async def learn(self, told: ServiceReplica) -> None:
        """What the engine says of it now."""
        pace = self._means.pace
        if told.origin is None or pace.clock() < self._ill_until:
            self._is_healthy = False
            self.reason = told.problem or told.waits_for or self.reason
            self.has_failed = bool(told.problem) and self._healthy_since is None
            return
        self.origin = told.origin
        if self._port:
            waits = await self._find_server(self._port, patient=pace.clock() < self._began + pace.port_within)
            if waits:
                self.reason, self._is_healthy = waits, False
                return
        self._recovered()

    def suspect(self) -> None:
        """A request could not be sent to it: no more of them for a moment, in which the engine may notice, too."""
        self._ill_until = self._means.pace.clock() + self._means.pace.recheck_after
        self._fell_ill("a request could not be sent to it")


class EngineReplicas(Replicas):
    """The same as `Replicas` to who asks, with an engine that makes them."""

    def __init__(
        self, record: ServiceRecord, means: Means, records: ServiceRecords, spec: Spec, engine: KeepsServices
    ) -> None:
        super().__init__(record.having(instances={}), {}, means, records, spec)
        self._engine = engine
        self._specs: dict[int, InstanceSpec] = {}
        self._problem = ""

    def _replica(self, record: ServiceRecord, id: str, generation: int, address: Address | None = None) -> Replica:
        told = ServiceReplica(id, generation, address.origin if address else None)
        port = None if record.port == RUNTIME_PORT else record.port
        return EngineReplica(told, self._means, self.wake, port)

    async def run(self) -> None:
        """Until the service is deleted and gone. The engine goes on without us."""
        (await first_of(super().run(), self._listen())).result()

    async def close(self) -> None:
        """Nothing: the engine looks after them, also when no gateway runs."""

    async def _listen(self) -> None:
        while True:
            await self._engine.service_changed(self.id)
            self.wake()

    async def _approach(self, record: ServiceRecord) -> None:
        generation = self._target(record)
        try:
            self._problem = await self._engine.keep_service(await self._wanted(record, generation))
        except AEnvError as error:
            self._problem = error.message
        await self._look(record)
        if self._seen(record) != record:
            await self._records.change(self.id, self._seen, durable=False)

    async def _wanted(self, record: ServiceRecord, generation: int) -> WantedService:
        if generation not in self._specs:
            spec = await self._spec(record, record.setups[generation], record.id)
            self._specs = {generation: replace(spec, drain=self._means.pace.drain_alone)}
        spec = self._specs[generation]
        return WantedService(record.id, generation, record.replicas, spec, record.port, record.storage_bytes)

    async def _look(self, record: ServiceRecord) -> None:
        told = {each.id: each for each in self._engine.service_replicas(self.id)}
        here = {replica.id: replica for replica in self._here}
        for id in told.keys() - here.keys():
            here[id] = self._replica(record, id, told[id].generation)
        self._here = [here[id] for id in told]
        for replica in self._here:
            assert isinstance(replica, EngineReplica)
            await replica.learn(told[replica.id])

    def _seen(self, record: ServiceRecord) -> ServiceRecord:
        # A replica of a setup that the record has forgotten is on its way out.
        known = super()._seen(record)
        kept = {id: number for id, number in known.instances.items() if number in record.setups}
        return known.having(instances=kept)

    def shown(self, record: ServiceRecord) -> ServiceRecord:
        found = super().shown(record)
        return found if found.reason or not self._problem else found.having(reason=self._problem)

    async def _end(self, record: ServiceRecord | None) -> None:
        if record is None:
            self._engine.forget_service(self.id)
            return  # another gateway has ended it; what has its name now may be another service
        place = storage.folder(self._means.home, record.owner, record.storage) if record.storage else None
        await self._engine.end_service(self.id, place if record.delete_storage else None)
        self._here = []
        await self._records.remove(record)


async def _no_spec() -> InstanceSpec:
    raise AssertionError("the engine starts it")
