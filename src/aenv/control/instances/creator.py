"""The creator: makes instances for requests, once however often they are asked for, and all of a batch or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ...base import wire
from ...base.errors import AEnvError, Conflict, StartFailed, Unavailable
from ...base.models import CreateInstance
from ...base.wire import EnvStatus
from ..serving import job_steps
from ..serving.accounts import Caller
from ..stores.base import Stale
from . import admission
from .creation import Admittance, Creation, CreationMeans, has_ended
from .ledger import fingerprint
from .records import Record
from .states import State
from .supervised import Supervised

_ATTEMPTS = 20  # to create what others create and undo at the same time
_LOOK_AGAIN = 0.1  # seconds between looks at an instance that another gateway is creating


class Creator:
    """Begins creations, and finds those that the same request has begun, here or on another gateway."""

    def __init__(self, means: CreationMeans) -> None:
        self._means = means
        self._supervisor = means.supervisor
        self._ledger = means.ledger

    @property
    def begun(self) -> Mapping[str, Supervised]:
        """The instances that this gateway makes, or has made and looks after."""
        return self._supervisor

    @property
    def is_crowded(self) -> bool:
        """Whether many instances begin or end now."""
        return self._means.transitions.is_crowded

    async def create(
        self,
        request: CreateInstance,
        caller: Caller,
        *,
        id: str | None = None,
        key: str | None = None,
        checks: bool = False,
        parent: str = "",
        part: str = "",
        works_in: str = "",
        until: float = 0.0,
    ) -> Record:
        """Return the instance once it is ready. Asking again with the same `id` or `key` gives the same one.

        Cancelling leaves nothing behind, unless another request waits for the same instance. One that `checks`
        is made for a self-check, and counts for no quota. One with a `parent` ends with that,
        and at `until`; `part` is what its parent calls it. It works in the workspace of the instance `works_in`.
        """
        for _ in range(_ATTEMPTS):
            # Clients of ours choose the id, and send the token that they get. Published ones send none.
            asked = self._record(request, caller, id, key, demands_token=id is not None, parent=parent)
            asked.until, asked.part, asked.works_in = until, part, works_in
            asked.self_check = "own" if checks else ""
            instance = await self._known(asked) or self._begin([asked], request, caller)[0]
            try:
                [record] = await self._delivered(instance)
                return record
            except Stale:
                if made := await self._made_elsewhere(asked):
                    return made
        raise Unavailable("other requests create and end the same instance at this moment; try again")

    async def create_many(self, request: CreateInstance, caller: Caller, ids: Sequence[str]) -> list[Record]:
        """Instances with these ids, all or none. Conflict when one of the ids is taken."""
        records = [self._record(request, caller, id, demands_token=True) for id in ids]
        for record in records:
            await self._known(record)  # one that is being undone is waited for
        for record in records:
            if self._begun(record):
                raise _taken(record.id)
        instances = self._begin(records, request, caller)
        try:
            return await self._delivered(*instances)
        except asyncio.CancelledError:
            for instance in instances:  # those that are ready, too: no client was told of any
                self._supervisor.start(instance, self._supervisor.end(instance, "no client waited for it"))
            raise
        except Stale as error:
            await self._end_batch(instances)
            raise _taken(error.key) from None
        except Unavailable:
            for instance in instances:  # its client repeats it, with the same ids
                self._supervisor.abandon(instance)
            await self._end_batch(instances)
            raise
        except AEnvError:
            await self._end_batch(instances)
            raise

    async def _end_batch(self, instances: Sequence[Supervised]) -> None:
        reason = "another one of its batch failed"
        await asyncio.gather(*(self._supervisor.end(instance, reason) for instance in instances))

    def not_delivered(self, records: Iterable[Record]) -> None:
        """The client that asked for them has gone without the answer: what no other client knows of is ended."""
        for record in records:
            instance = self._supervisor.get(record.id)
            if instance and instance.record.requested_at == record.requested_at:
                instance.lost += 1
                if not (instance.delivered or instance.waiting):
                    self._supervisor.abandon(instance)

    # Beginning, or finding what has begun here

    def _record(
        self,
        request: CreateInstance,
        caller: Caller,
        id: str | None = None,
        key: str | None = None,
        *,
        demands_token: bool,
        parent: str = "",
    ) -> Record:
        owner = admission.owner_of(request, caller)
        return Record(
            id=id or wire.new_instance_id(admission.ref_of(request).name),
            node=self._means.here.node,
            gateway=self._means.here.name,
            fingerprint=fingerprint(request, owner, parent),
            parent=parent,
            owner=owner,
            account=caller.account,
            demands_token=demands_token and caller.account is not None,
            labels=request.labels,
            key=key,
        )

    async def _known(self, asked: Record) -> Supervised | None:
        """The instance that the same request has begun here."""
        while instance := self._begun(asked):
            _check_same(asked, instance.record)
            if instance.state is not State.UNDOING:
                return instance
            # A client whose connection broke asks again while its first attempt is being undone.
            await instance.ended.wait()
        return None

    def _begun(self, asked: Record) -> Supervised | None:
        if asked.key:
            return self._supervisor.of_key(asked.owner, asked.key)
        return self._supervisor.get(asked.id)

    def _begin(self, records: Sequence[Record], request: CreateInstance, caller: Caller) -> list[Supervised]:
        if self._supervisor.refusal:
            raise Unavailable(self._supervisor.refusal)
        if not self._supervisor.has_parent(records[0]):
            raise Conflict(f"instance {records[0].parent!r} has ended, and cannot create instances")
        instances = [Supervised(record, asked=(request, caller)) for record in records]
        job_steps.listen(partial(_tell, instances))
        admittance = Admittance(instances, request, caller, self._means)
        for instance in instances:
            self._supervisor.add(instance)
            instance.creation = Creation(instance, request, admittance, self._means)
        return instances

    async def _delivered(self, *instances: Supervised) -> list[Record]:
        """Wait for creations; raises the first failure in their order. They go on side by side meanwhile.

        The last request to stop waiting for one takes it along, if no client was told of it.
        """
        creations = [instance.creation for instance in instances if instance.creation]
        for instance in instances:
            instance.waiting += 1
        try:
            for creation in creations:
                await creation.over()
        except asyncio.CancelledError:
            for instance in instances:
                if instance.waiting == 1 and not instance.delivered:
                    self._supervisor.abandon(instance)
            raise
        finally:
            for instance in instances:
                instance.waiting -= 1
        for instance in instances:
            if not instance.is_live:
                raise has_ended(instance.record)
        for instance in instances:
            instance.told += 1
        return [instance.record for instance in instances]

    # Finding what another gateway has begun

    async def _made_elsewhere(self, asked: Record) -> Record | None:
        """The instance that another gateway makes, or made, for the same request; None when that was undone."""
        await self._means.transitions.save_rest()  # what could not be written down is not to be waited for
        while True:
            id = await self._ledger.find_key(asked.owner, asked.key) if asked.key else asked.id
            record = await self._ledger.find(id) if id else None
            if record is None:
                if id and asked.key:  # the store has lost what it was for
                    await self._ledger.forget_key(asked.owner, asked.key)
                return None
            _check_same(asked, record)
            if record.begins_again:
                await self._ledger.forget(record)
                return None
            if record.status is EnvStatus.RUNNING:
                return record
            if record.status is EnvStatus.FAILED and not record.expires_at:
                raise StartFailed(record.reason or "it could not be started")
            if not record.is_live:
                raise has_ended(record)
            await asyncio.sleep(_LOOK_AGAIN)  # the store does not announce changes


def _check_same(asked: Record, record: Record) -> None:
    if record.fingerprint != asked.fingerprint:
        # No details: a caller that guessed an id, or repeats a key, learns nothing about the other request.
        known = "this Idempotency-Key was used before" if asked.key else f"instance {asked.id!r} exists already"
        raise Conflict(known)


def _taken(id: str) -> Conflict:
    return Conflict(f"the instance id {id!r} is taken; choose another, or leave 'ids' out")


def _tell(instances: Sequence[Supervised], step: job_steps.JobStep) -> None:
    for instance in instances:
        if instance.creation:
            instance.creation.job_step = step
