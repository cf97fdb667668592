"""Strays: what runs on an engine that several gateways share, and has no record.

Its gateway was killed between two steps, or its end did not reach the engine. Without other gateways it would be
ended when the gateway starts; with them, one that leads ends it after it has been seen for a while: the record of
an instance is written before the instance is made, and a record that the store has lost is written again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Set

from ...engines.base import SharedByGateways
from .ledger import Ledger
from .supervisor import Supervisor

logger = logging.getLogger("aenv.control.instances.strays")

PATIENCE = 60.0  # seconds: every gateway has compared its instances with the store several times

ReplicaIds = Callable[[], Awaitable[Set[str]]]


class Strays:
    """Those of one node, as the gateway that leads it sees them."""

    def __init__(
        self, engine: SharedByGateways, ledger: Ledger, supervisor: Supervisor, replicas: ReplicaIds
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._supervisor = supervisor
        self._replicas = replicas
        self._since: dict[str, float] = {}

    async def tend(self, living: Set[str]) -> None:
        """One round; `living` are the instances of the node that have a record, as of before it."""
        now = time.monotonic()
        strange = {id for id in self._engine.present() if id not in living and id not in self._supervisor}
        self._since = {id: self._since.get(id, now) for id in strange}
        late = [id for id, since in self._since.items() if since + PATIENCE <= now]
        if not late:
            return
        records, replicas = await self._ledger.all_of(late), await self._replicas()
        for id in late:
            record = records[id]
            if not (record and record.is_live) and id not in replicas:
                logger.info("instance %s has no gateway, and is ended", id)
                await self._supervisor.destroy_quietly(id)
