"""The gateways that share one cluster's instances: each keeps a Lease in the namespace while it lives.

A Lease says to which installation the gateway belongs, that is to which store, and how many spare Pods of each
kind it wants. So the gateways make one warm pool together, take over what a killed one began, and refuse to start
beside an installation of another store whose instances have the same name: each would end the other's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lightkube.generic_resource import create_namespaced_resource

from ...base.errors import AEnvError, Conflict, NotFound
from ...base.supervision import Tasks
from .cluster_client import Cluster
from .pod_manifest import OWNER

logger = logging.getLogger("aenv.engines.kubernetes")

Leases = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")

_PERIOD = 10.0
_LASTS = 40  # seconds after its last sign of life for which a gateway counts as living
_INSTALLATION = "aenv/installation"
_PLACE = "aenv/place"
_WANTED = "aenv/spares"


@dataclass(frozen=True)
class OtherGateway:
    """A gateway as its Lease shows it."""

    name: str
    installation: str
    """Empty while it has not read its store."""
    place: str
    """Its home folder."""
    wanted: Mapping[str, int]
    """How many spare Pods it wants of each kind."""


class GatewayLeases:
    """`async with`: the Lease of this gateway is kept inside, and given up at the end."""

    def __init__(self, cluster: Cluster, owner: str) -> None:
        self._cluster = cluster
        self._owner = owner
        self.name = f"aenv-{re.sub('[^a-z0-9-]', '-', owner.lower())}-{secrets.token_hex(5)}"
        """That of our Lease; what we begin carries it, too."""
        self._installation = ""
        self._place = ""
        self._wanted: Mapping[str, int] = {}
        self._others: tuple[OtherGateway, ...] = ()
        self._signs: dict[str, tuple[str, float]] = {}
        """When each Lease was last renewed: by the clock of its holder, and by ours when we saw the change."""
        self._expired: list[str] = []
        self._tasks = Tasks()
        self.on_change: Callable[[], None] = lambda: None
        """Called when another gateway begins or ends to live, or wants another number of spare Pods."""

    async def __aenter__(self) -> GatewayLeases:
        lease = {"metadata": {"name": self.name, "labels": {OWNER: self._owner}}, **self._state()}
        lease["metadata"]["annotations"] = self._annotations()
        try:
            await self._cluster.create(Leases, lease)
        except Conflict:  # the answer to a first attempt was lost: no other gateway has this name
            await self._renew()
        await self.look()
        await self._tasks.__aenter__()
        self._tasks.keep("the Lease of this gateway", self._keep)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.__aexit__(asyncio.CancelledError)  # its loop never ends by itself
        with contextlib.suppress(AEnvError):  # it ends by itself, soon
            await self._cluster.delete(Leases, self.name)

    async def join(self, installation: str, place: str) -> bool:
        """From now on this is a gateway of that installation; whether it is the only one that lives.

        `place` is a home folder that no other gateway has open. Conflict where one of another installation lives.
        """
        self._installation, self._place = installation, place
        await self._renew()
        await self.look()
        strangers = [one for one in self._others if one.installation not in ("", installation)]
        if strangers:
            raise Conflict(
                f"the instances named {self._owner!r} in namespace {self._cluster.namespace!r} belong to another "
                f"gateway ({strangers[0].name}), which has another store; use its --store, or another --kube-name"
            )
        return not self._others

    async def want(self, wanted: Mapping[str, int]) -> None:
        """Tell the others which spare Pods this gateway wants; they know it on return."""
        if dict(wanted) != dict(self._wanted):
            self._wanted = dict(wanted)
            await self._renew()

    def wanted(self, kind: str) -> int:
        """The most that any other gateway wants of a kind, as of the last look."""
        return max((one.wanted.get(kind, 0) for one in self._others), default=0)

    def lives(self, name: str) -> bool:
        """Whether the gateway with this Lease lives, as of the last look."""
        return name == self.name or any(one.name == name for one in self._others)

    async def look(self) -> None:
        """Learn which other gateways live now."""
        found, _ = await self._cluster.list_with_version(Leases, {OWNER: self._owner})
        theirs = [lease for lease in found if lease["metadata"]["name"] != self.name]
        living = [lease for lease in theirs if self._lives(lease)]
        # A gateway that had our home folder has ended: only its Lease is left.
        former = [lease for lease in living if self._place and _note(lease, _PLACE) == self._place]
        before = self._others
        self._others = tuple(_gateway(lease) for lease in living if lease not in former)
        self._expired = [each["metadata"]["name"] for each in theirs if each not in living or each in former]
        self._signs = {each["metadata"]["name"]: self._signs[each["metadata"]["name"]] for each in theirs}
        if before != self._others:
            self.on_change()

    async def sweep(self) -> None:
        """Remove the Leases of gateways that were killed."""
        for name in self._expired:
            with contextlib.suppress(NotFound):
                await self._cluster.delete(Leases, name)
        self._expired = []

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            try:
                await self._renew()
                await self.look()
            except AEnvError as error:
                logger.warning("the Lease of this gateway was not renewed: %s", error)

    async def _renew(self) -> None:
        change = {"metadata": {"annotations": self._annotations()}, **self._state()}
        try:
            await self._cluster.patch(Leases, self.name, change)
        except NotFound:  # another one took us for dead
            change["metadata"] |= {"name": self.name, "labels": {OWNER: self._owner}}
            with contextlib.suppress(Conflict):
                await self._cluster.create(Leases, change)

    def _state(self) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"spec": {"holderIdentity": self.name, "leaseDurationSeconds": _LASTS, "renewTime": now}}

    def _annotations(self) -> dict[str, str]:
        wanted = {kind: count for kind, count in self._wanted.items() if count}
        return {_INSTALLATION: self._installation, _PLACE: self._place, _WANTED: json.dumps(wanted)}

    def _lives(self, lease: Mapping[str, Any]) -> bool:
        """By our clock since we saw it change; by that of its holder where we have seen no change yet."""
        name, renewed = lease["metadata"]["name"], str(lease.get("spec", {}).get("renewTime", ""))
        known = self._signs.get(name)
        if known is None:
            self._signs[name] = renewed, time.monotonic() - max(0.0, _age(renewed))
        elif known[0] != renewed:
            self._signs[name] = renewed, time.monotonic()
        return time.monotonic() - self._signs[name][1] < _LASTS


def _age(renewed: str) -> float:
    with contextlib.suppress(ValueError):
        return time.time() - datetime.fromisoformat(renewed).timestamp()
    return float(_LASTS)


def _note(lease: Mapping[str, Any], name: str) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(name, ""))


def _gateway(lease: Mapping[str, Any]) -> OtherGateway:
    wanted: dict[str, int] = {}
    with contextlib.suppress(ValueError, TypeError, AttributeError):  # a note that a person has changed
        wanted = {str(kind): int(count) for kind, count in json.loads(_note(lease, _WANTED)).items()}
    name = str(lease["metadata"]["name"])
    return OtherGateway(name, _note(lease, _INSTALLATION), _note(lease, _PLACE), wanted)
