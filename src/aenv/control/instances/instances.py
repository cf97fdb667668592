"""Instances as routes and proxy ask for them: whose they are, where they are, and what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..addresses import Origin
from ..engines.base import Address, Engine, Measures, Ports, Used
from ..errors import Conflict, NotFound, Unavailable, Unsupported
from ..serving.accounts import LOCAL, Caller
from ..stores.base import Stale
from ..wire import EnvStatus
from .freezing import Freezing
from .ledger import Ledger
from .life import Life
from .lives import Lives
from .records import Record
from .selection import Selection

_ADDRESS_KNOWN = 10.0  # seconds for which the address of another gateway's instance is believed
_PORT_KNOWN = 1.0  # seconds for which a port is believed to be the instance's: looking it up takes milliseconds
_MAX_ADDRESSES = 10_000


class Use:
    """A call of an instance, which is not frozen inside the `with`. Count it first, then find the address."""

    def __init__(self, lives: Lives, life: Life | None) -> None:
        self.address: Address | None = None
        self._lives = lives
        self._life = life
        if life:
            life.calls += 1

    def __enter__(self) -> Address:
        assert self.address
        return self.address

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """What is left of it, a stream perhaps, needs no instance that runs. May be repeated."""
        life, self._life = self._life, None
        if life:
            life.calls -= 1
            self._lives.used(life)


class Instances:
    """The instances of all gateways on one store."""

    def __init__(self, engine: Engine, ledger: Ledger, lives: Lives, freezing: Freezing, node: str) -> None:
        self.engine = engine
        self._ledger = ledger
        self._lives = lives
        self._freezing = freezing
        self._node = node
        self._elsewhere: dict[str, tuple[float, Address]] = {}
        self._ports: dict[tuple[str, int], tuple[float, Origin]] = {}

    async def get(self, id: str, caller: Caller = LOCAL) -> Record:
        """NotFound also for one that is somebody else's: its id says nothing to strangers."""
        record = await self._ledger.find(id)
        life = self._lives.by_id.get(id)
        if life and (record is None or (record.revision == life.record.revision and not _begins(life))):
            # The store does not know yet that it begins, that it ends, or that it was frozen. As a copy: whoever
            # asked may change it, and fail to save it.
            record = replace(life.record)
        if record is None or not caller.owns(record.owner):
            raise NotFound(f"instance {id!r} not found")
        return record

    async def list(self, selection: Selection, caller: Caller = LOCAL) -> list[Record]:
        """The instances that `selection` is about, as far as they are the caller's."""
        return await self._ledger.select(_own(selection, caller))

    def is_frozen(self, id: str) -> bool:
        """Whether it waits for its next call, as far as this gateway knows."""
        life = self._lives.by_id.get(id)
        return life is not None and life.frozen_at is not None

    async def used(self, records: Iterable[Record]) -> Mapping[str, Used]:
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
        life = self._lives.by_id.get(id)
        use = Use(self._lives, life)
        try:
            use.address = await (self._address_here(life) if life else self._address_elsewhere(id))
        except BaseException:
            use.end()
            raise
        return use

    async def _address_here(self, life: Life) -> Address:
        id = life.record.id
        self._lives.used(life)
        await self._freezing.awake(life)
        if life.record.status is EnvStatus.CREATING:
            raise Unavailable(f"instance {id!r} is still starting")
        if life.record.address is None or not life.is_live:
            raise _has_ended(life.record)
        return life.record.address

    async def running(self, id: str, caller: Caller = LOCAL) -> Record:
        """One of the caller's, which runs on this gateway's engine: for logs, commands and files."""
        record = await self.get(id, caller)
        if record.status is not EnvStatus.RUNNING:
            raise Conflict(f"instance {id!r} is {record.status.lower()}; this takes one that runs")
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
        while True:
            record = await self.get(id, caller)
            _check_renewable(record)
            record.renew(ttl)
            try:
                await self._ledger.save(record)
            except Stale:
                continue
            life = self._lives.by_id.get(id)
            if life and not life.is_being_created:
                _check_renewable(life.record)  # its end may have begun meanwhile
                self._lives.update(life, record)
            return record

    async def delete(self, id: str, caller: Caller = LOCAL) -> None:
        """Return once the instance is gone; fine when it has ended before."""
        while (life := self._lives.by_id.get(id)) is None:
            record = await self.get(id, caller)
            if not record.is_live:
                return
            self._check_here(record)
            await self._lives.take_over(record, record.address)
        if not caller.owns(life.record.owner):
            raise NotFound(f"instance {id!r} not found")
        await self._lives.end(life, "deleted")
        if not life.record.revision:  # it was not in the store yet, where another gateway's of the same id may be
            with contextlib.suppress(NotFound):
                await self.delete(id, caller)
        if self._lives.is_unsaved(life):
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

    async def _address_elsewhere(self, id: str) -> Address:
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
            return self._believe(id, record.address)
        seconds = min(_ADDRESS_KNOWN, record.idle_timeout / 2)
        await self._ledger.note_use(id, record.idle_timeout + seconds)
        return self._believe(id, record.address, seconds)

    def _believe(self, id: str, address: Address, seconds: float = _ADDRESS_KNOWN) -> Address:
        if len(self._elsewhere) > _MAX_ADDRESSES:
            self._elsewhere.clear()
        self._elsewhere[id] = (time.monotonic() + seconds, address)
        return address

    def _check_here(self, record: Record) -> None:
        if record.node != self._node:
            raise Unavailable(
                f"instance {record.id!r} runs on another node; ask a gateway of node {record.node!r}"
            )


def _begins(life: Life) -> bool:
    """Whether it runs, and this is just being recorded: nobody is told before."""
    return life.is_live and life.is_being_created


def _own(selection: Selection, caller: Caller) -> Selection:
    return selection if caller.is_admin else replace(selection, owner=caller.user)


def _check_renewable(record: Record) -> None:
    if record.status is not EnvStatus.RUNNING:
        raise Conflict(f"instance {record.id!r} is {record.status.lower()}; only one that runs can be renewed")


def _has_ended(record: Record) -> NotFound:
    return NotFound(f"instance {record.id!r} not found: it has ended: {record.reason}")
