"""Instances as routes and proxy ask for them: whose they are, where they are, and what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ...base.addresses import Origin
from ...base.errors import Conflict, NotFound, Unavailable, Unsupported
from ...base.wire import EnvStatus, cut_id
from ...engines.base import Address, Engine, Measures, Ports, ResourceUsage
from ..serving.accounts import LOCAL, Caller, Role
from ..stores.base import Stale
from .freezing import Freezing
from .ledger import Ledger
from .records import Record
from .selection import Selection
from .states import State, Stored
from .supervised import Supervised
from .supervisor import Supervisor
from .transitions import Transitions

_ADDRESS_KNOWN = 10.0  # seconds for which the address of another gateway's instance is believed
_PORT_KNOWN = 1.0  # seconds for which a port is believed to be the instance's: looking it up takes milliseconds
_MAX_ADDRESSES = 10_000
_Elsewhere = tuple[Address, str]  # and what its record says of the self-check
_ATTEMPTS = 20  # to write a record that others change at the same time


class Guard(NamedTuple):
    """Whose an instance is, and whether its id alone does not open it."""

    owner: str | None
    demands_token: bool


class Use:
    """A call of an instance, which is not frozen inside the `with`. Count it first, then find the address."""

    def __init__(self, supervisor: Supervisor, instance: Supervised | None) -> None:
        self.address: Address | None = None
        self.instance = instance
        """None where another gateway looks after it."""
        self.self_check: str = instance.record.self_check if instance else ""
        self._supervisor = supervisor
        self._instance = instance
        if instance:
            instance.calls += 1

    def __enter__(self) -> Address:
        assert self.address
        return self.address

    def __exit__(self, *exc: object) -> None:
        self.end()

    async def why_it_ended(self, timeout: float) -> str:
        """The reason, where the instance has just ended; empty when it lives, or another gateway has it."""
        return await _why_ended(self.instance, timeout) if self.instance else ""

    def end(self) -> None:
        """What is left of it, a stream perhaps, needs no instance that runs. May be repeated."""
        instance, self._instance = self._instance, None
        if instance:
            instance.calls -= 1
            self._supervisor.used(instance)


class InstanceAccess:
    """The instances of all gateways on one store."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        transitions: Transitions,
        supervisor: Supervisor,
        freezing: Freezing,
        node: str,
        *,
        demand_tokens: bool = False,
    ) -> None:
        """`demand_tokens`: no instance is opened by its id alone."""
        self.engine = engine
        self._demand_tokens = demand_tokens
        self._ledger = ledger
        self._transitions = transitions
        self._supervisor = supervisor
        self._freezing = freezing
        self._node = node
        self._elsewhere: dict[str, tuple[float, _Elsewhere]] = {}
        self._ports: dict[tuple[str, int], tuple[float, Origin]] = {}
        self._guards: dict[str, Guard] = {}
        """Those of other gateways' instances; they never change."""

    async def get(self, id: str, caller: Caller = LOCAL) -> Record:
        """NotFound also for one of another owner: its id says nothing to strangers."""
        record = await self._ledger.find(id)
        instance = self._supervisor.get(id)
        if instance and (record is None or record.revision == instance.record.revision):
            # The store does not know yet that it begins, that it ends, or that it was frozen. As a copy: a
            # caller may change it, and fail to save it.
            record = replace(instance.record)
        if record is None or not caller.owns(record.owner):
            raise NotFound(f"instance {id!r} not found")
        creation = instance.creation if instance else None
        if record.status is EnvStatus.CREATING and creation and (step := creation.step()):
            record = replace(record, reason=step)
        return record

    async def list(self, selection: Selection, caller: Caller = LOCAL) -> list[Record]:
        """The instances that `selection` is about, as far as they are the caller's."""
        selection = _own(selection, caller)
        if selection.cursor and selection.cursor.endswith("…"):  # as `shown_id` gave it
            everything = await self._ledger.select(replace(selection, cursor=None, limit=None))
            last = next((one.id for one in everything if cut_id(one.id) == selection.cursor), selection.cursor)
            selection = replace(selection, cursor=last)
        return await self._ledger.select(selection)

    def shown_id(self, record: Record, caller: Caller) -> str:
        """Its id as lists show it: cut for a viewer, who may not call it, where the id alone would open it."""
        may_know = caller.role.includes(Role.USER) or record.demands_token or self._demand_tokens
        return record.id if may_know else cut_id(record.id)

    def is_frozen(self, id: str) -> bool:
        """Whether it waits for its next call, as far as this gateway knows."""
        instance = self._supervisor.get(id)
        return instance is not None and instance.frozen_at is not None

    def calls_under_way(self, id: str) -> int | None:
        """How many calls of it are under way; None where another gateway has it."""
        instance = self._supervisor.get(id)
        return None if instance is None else instance.calls_under_way

    async def used(self, records: Iterable[Record]) -> Mapping[str, ResourceUsage]:
        """What those use that run here, where the engine can tell."""
        if not isinstance(self.engine, Measures):
            return {}
        here = [one.id for one in records if one.status is EnvStatus.RUNNING and one.node == self._node]
        return await self.engine.used(here)

    async def address(self, id: str) -> Address:
        """Where to send data for `id`: only to one that runs."""
        with await self.use(id) as address:
            return address

    async def use(self, id: str) -> Use:
        """A call that begins: `with await use(id) as address`."""
        instance = self._supervisor.get(id)
        use = Use(self._supervisor, instance)
        try:
            if instance:
                use.address = await self._address_here(instance)
            else:
                use.address, use.self_check = await self._address_elsewhere(id)
        except BaseException:
            use.end()
            raise
        return use

    async def lease(self, id: str, caller: Caller) -> Use:
        """A use between calls and during them, for a client that calls its socket. Wakes it first.

        Unavailable where another gateway looks after it, which would not know that it is in use.
        """
        instance = self._supervisor.get(id)
        if instance is None:
            raise Unavailable(f"instance {id!r} is not looked after here")
        if not caller.owns(instance.record.owner):
            raise NotFound(f"instance {id!r} not found")
        return await self.use(id)

    def quiet(self, use: Use, most: float) -> float:
        """Seconds, at most `most`, that a lease may last without a call: less than would freeze it, or end it."""
        assert use.instance
        times = (self._freezing.patience(use.instance), use.instance.record.idle_timeout or 0.0)
        return min([most, *(time / 2 for time in times if time)])

    def socket(self, record: Record) -> str | None:
        """Where one that this gateway looks after can be called on this host."""
        is_here = record.id in self._supervisor and record.status is EnvStatus.RUNNING
        return record.address.origin.socket if is_here and record.address else None

    async def guard(self, id: str) -> Guard:
        """What opens its data path. It is not woken for that."""
        if instance := self._supervisor.get(id):
            return Guard(instance.record.owner, self._demand_tokens or instance.record.demands_token)
        if id not in self._guards:
            record = await self._ledger.get(id)
            if len(self._guards) > _MAX_ADDRESSES:
                self._guards.clear()
            self._guards[id] = Guard(record.owner, self._demand_tokens or record.demands_token)
        return self._guards[id]

    async def why_ended(self, id: str, timeout: float) -> str:
        """The reason, where it has just ended; empty when it lives, or is not known."""
        if instance := self._supervisor.get(id):
            return await _why_ended(instance, timeout)
        record = await self._ledger.find(id)
        return record.reason or "" if record and not record.is_live else ""

    async def _address_here(self, instance: Supervised) -> Address:
        id = instance.record.id
        self._supervisor.used(instance)
        await self._freezing.awake(instance)
        if instance.state is State.CREATING:
            raise Unavailable(f"instance {id!r} is still starting")
        if instance.record.address is None or not instance.is_live:
            raise _has_ended(instance.record)
        return instance.record.address

    async def running(self, id: str, caller: Caller = LOCAL) -> Record:
        """One of the caller's, which runs on this gateway's engine: for logs, commands and files."""
        record = await self.get(id, caller)
        if record.status is not EnvStatus.RUNNING:
            raise Conflict(f"instance {id!r} is {record.status.lower()}; this needs a running instance")
        self._check_here(record)
        return record

    async def port(self, id: str, port: int) -> Origin:
        """Where a server inside an instance can be reached."""
        with await self.use(id):
            known = self._ports.get((id, port))
            if known and known[0] > time.monotonic():
                return known[1]
            if not isinstance(self.engine, Ports):
                raise Unsupported(f"the {self.engine.name} engine cannot open ports of an instance")
            origin = await self.engine.port(id, port)
        if len(self._ports) > _MAX_ADDRESSES:
            self._ports.clear()
        self._ports[id, port] = (time.monotonic() + _PORT_KNOWN, origin)
        return origin

    async def renew(self, id: str, ttl: float, caller: Caller = LOCAL) -> Record:
        """Let a running instance live for `ttl` seconds from now."""
        for _ in range(_ATTEMPTS):
            record = await self.get(id, caller)
            _check_renewable(record)
            record.renew(ttl)
            try:
                await self._ledger.save(record)
            except Stale:
                await self._recover(id)
                continue
            instance = self._supervisor.get(id)
            if instance and not instance.is_being_created:
                _check_renewable(instance.record)  # its end may have begun meanwhile
                self._supervisor.update(instance, record)
            self._transitions.renewed(record)
            return record
        raise Unavailable(f"the record of instance {id!r} is being changed by other requests; try again")

    async def _recover(self, id: str) -> None:
        """A write did not meet the record that it was made for. Where that is lost, it is written again."""
        instance = self._supervisor.get(id)
        if instance and instance.state is State.RUNNING and await self._ledger.find(id) is None:
            await self._supervisor.write_again(instance)

    async def delete(self, id: str, caller: Caller = LOCAL) -> None:
        """Return once the instance is gone; fine when it has ended before."""
        while (instance := self._supervisor.get(id)) is None:
            record = await self.get(id, caller)
            if not record.is_live:
                return
            self._check_here(record)
            await self._supervisor.take_over(record, record.address)
        if not caller.owns(instance.record.owner):
            raise NotFound(f"instance {id!r} not found")
        await self._supervisor.end(instance, "deleted")
        if instance.stored is not Stored.YES:  # the store may have another gateway's instance of the same id
            with contextlib.suppress(NotFound):
                await self.delete(id, caller)
        if self._transitions.is_unsaved(instance):
            raise Unavailable("the instance has ended, but the store does not answer, so it is still listed")

    async def delete_all(self, selection: Selection, caller: Caller = LOCAL) -> int:
        """Return once all of them are gone; says how many they were. What fails for one keeps no other alive."""
        chosen = await self.list(selection, caller)
        deletions = (self.delete(record.id, caller) for record in chosen)
        for outcome in await asyncio.gather(*deletions, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, NotFound):  # one that was undone
                raise outcome
        return len(chosen)

    # Instances of other gateways

    async def _address_elsewhere(self, id: str) -> _Elsewhere:
        known = self._elsewhere.get(id)
        if known and known[0] > time.monotonic():
            return known[1]
        try:
            record = await self._ledger.get(id)
        except Unavailable:
            if known is None:
                raise
            return self._believe(id, known[1])  # what runs goes on while the store does not answer
        self._elsewhere.pop(id, None)
        if record.status is EnvStatus.CREATING:
            raise Unavailable(f"instance {id!r} is still starting")
        if record.address is None or not record.is_live:
            raise _has_ended(record)
        self._check_here(record)
        await self._freezing.keep_awake(id)
        if not record.idle_timeout:
            return self._believe(id, (record.address, record.self_check))
        seconds = min(_ADDRESS_KNOWN, record.idle_timeout / 2)
        await self._ledger.note_use(id, record.idle_timeout + seconds)
        return self._believe(id, (record.address, record.self_check), seconds)

    def _believe(self, id: str, address: _Elsewhere, seconds: float = _ADDRESS_KNOWN) -> _Elsewhere:
        if len(self._elsewhere) > _MAX_ADDRESSES:
            self._elsewhere.clear()
        self._elsewhere[id] = (time.monotonic() + seconds, address)
        return address

    def _check_here(self, record: Record) -> None:
        if record.node != self._node:
            raise Unavailable(
                f"instance {record.id!r} runs on another node; ask a gateway of node {record.node!r}"
            )


def _own(selection: Selection, caller: Caller) -> Selection:
    return selection if caller.is_admin else replace(selection, owner=caller.user)


def _check_renewable(record: Record) -> None:
    if record.status is not EnvStatus.RUNNING:
        raise Conflict(f"instance {record.id!r} is {record.status.lower()}; only one that runs can be renewed")


def _has_ended(record: Record) -> NotFound:
    return NotFound(f"instance {record.id!r} not found: it has ended: {record.reason}")


async def _why_ended(instance: Supervised, timeout: float) -> str:
    if instance.watcher is None:
        return ""
    await asyncio.wait({instance.watcher}, timeout=timeout)
    return "" if instance.is_live else instance.record.reason or ""
