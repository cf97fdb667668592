"""Nodes: every machine with an engine says that it lives; what ran on one that says nothing has failed.

Each gateway keeps a lease for its node. One gateway of all looks for leases that are over.
"""

from __future__ import annotations

import logging

from ...base.wire import EnvStatus
from ..stores.base import Coordination
from .ledger import Ledger
from .transitions import Transitions

logger = logging.getLogger("aenv.control.instances.nodes")

SILENCE = 30  # seconds without a sign of life after which a node counts as dead, as callers are told
_LEASE = 20.0  # seconds; with two looks in a row, ten seconds apart, that makes the silence


class Nodes:
    """All nodes on one store, as the gateway of one of them sees them."""

    def __init__(
        self, ledger: Ledger, transitions: Transitions, coordination: Coordination, node: str, gateway: str
    ) -> None:
        self._ledger = ledger
        self._transitions = transitions
        self._coordination = coordination
        self._node = node
        self._gateway = gateway
        self._silent: set[str] = set()
        """Nodes that kept no lease at the last look."""
        self._has_walked = False

    async def announce(self) -> None:
        """Tell gateways of other nodes that this one lives. Held by all gateways of the node alike."""
        await self._coordination.lease(f"node {self._node}", self._node, _LEASE)
        await self._ledger.join(self._node)

    async def tend(self) -> None:
        """Look for dead nodes, where no other gateway does; free what their instances took."""
        if not await self._coordination.lease("upkeep of nodes", self._gateway, _LEASE):
            return
        others = set(await self._ledger.nodes()) - {self._node}
        if not self._has_walked:  # a node that died before this version had no lease, and had not joined
            others |= {record.node for record in await self._ledger.living()} - {self._node}
        silent = {node for node in others if await is_free(self._coordination, f"node {node}", self._gateway)}
        # Twice in a row: when the store comes back, all leases are over, and others renew theirs in a moment.
        dead, self._silent = silent & self._silent, silent
        self._has_walked = self._has_walked or not (silent - dead)
        for node in dead:
            await self._bury(node)

    async def resign(self) -> None:
        """Let another gateway look at once. The node's own lease ends by itself: others of it may live."""
        await self._coordination.lease("upkeep of nodes", self._gateway, 0)

    async def _bury(self, node: str) -> None:
        lost = await self._ledger.living_on(node)
        for record in lost:
            record.begins_again = record.status is EnvStatus.CREATING
            record.node = self._node  # which forgets the record in time; nothing of the instance is here
            reason = f"its node {node!r} gave no sign of life for {SILENCE} s"
            await self._transitions.bury(record, EnvStatus.FAILED, reason)  # unless its node has just returned
        await self._ledger.remove_node(node)
        if lost:
            logger.warning("node %s gave no sign of life: its %d instances have failed", node, len(lost))


async def is_free(coordination: Coordination, lease: str, gateway: str) -> bool:
    """Whether its owner does not keep a lease: then another gateway can take it, and gives it back."""
    if not await coordination.lease(lease, gateway, 1.0):
        return False
    await coordination.lease(lease, gateway, 0)
    return True
