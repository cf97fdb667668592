"""The routes of who watches over a gateway: what its instances use, and how many spare ones are kept ready."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from ...base.errors import Forbidden
from ...base.models import InstanceUsage, KeepWarm, Usage, WarmPool
from ...base.wire import EnvStatus, timestamp
from ...engines.base import ResourceUsage
from ..hub.environment_routes import any_ref
from ..hub.hub_routes import HubRoutes
from ..instances import selection
from ..instances.catalog import Catalog
from ..instances.instance_access import InstanceAccess
from ..instances.records import Record
from ..instances.warm_pools import WarmPools
from ..services.service_supervisor import ServiceSupervisor
from ..serving import envelope
from ..serving.accounts import Caller, Role
from ..serving.routes import Route, RouteCall
from .instance_routes import FILTERS


class UsageRoutes:
    def __init__(
        self,
        instances: InstanceAccess,
        services: ServiceSupervisor,
        warm_pools: WarmPools,
        catalog: Catalog,
        hub: HubRoutes,
    ) -> None:
        self._instances = instances
        self._services = services
        self._warm_pools = warm_pools
        self._catalog = catalog
        self._hub = hub

    def routes(self) -> list[Route]:
        used, pool = "/env-instances/usage", "/env/{name}/{version}/warm"
        keep = "keep spare instances ready; for the environment's owner"
        return [
            Route("GET", used, self._usage, Role.VIEWER, "what instances use", reply=Usage, query=FILTERS),
            Route("PUT", pool, self._warm, Role.USER, keep, body=KeepWarm, reply=WarmPool),
        ]

    async def _usage(self, call: RouteCall) -> Response:
        records = await self._instances.list(selection.read("*", call.query), call.caller)
        used = await self._instances.used(records)
        # For administrators: the names of environments are not for everyone.
        warm = dict(self._warm_pools.ready()) if call.caller.is_admin else {}
        rows = [self._row(record, used.get(record.id), call.caller) for record in records]
        if not call.query.keys() - {"envName", "owner", "limit"}:  # replicas have no labels, and one status
            rows += await self._replicas(call)
        return envelope.success(Usage(at=timestamp(), instances=rows, warm=warm).model_dump(mode="json"))

    def _row(self, record: Record, used: ResourceUsage | None, caller: Caller) -> InstanceUsage:
        running = record.status is EnvStatus.RUNNING
        return InstanceUsage(
            id=self._instances.shown_id(record, caller),
            env=record.environment,
            owner=record.owner,
            status=record.status,
            frozen=self._instances.is_frozen(record.id) if running else None,
            **_told(used),
            calls=self._instances.calls_under_way(record.id) if running else None,
            created_at=timestamp(record.created_at),
            expires_at=timestamp(record.expires_at) if running else None,
        )

    async def _replicas(self, call: RouteCall) -> list[InstanceUsage]:
        found, used = await self._services.replicas(call.query.get("envName") or "*", call.caller)
        owner = call.query.get("owner")
        return [
            InstanceUsage(
                id=id,
                env=record.setup.environment,
                owner=record.owner,
                status=record.status,
                service=record.id,
                **_told(used.get(id)),
                created_at=timestamp(record.created_at),
            )
            for record, id in found
            if owner in (None, record.owner)
        ]

    async def _warm(self, call: RouteCall) -> Response:
        count = (await call.read(KeepWarm)).count
        environment = await self._hub.find(any_ref(call), call.caller)
        policy = environment.policy  # of a folder on this machine there is none, nor an owner
        if not call.caller.is_admin and not (policy and call.caller.owns(policy.owner)):
            raise Forbidden(f"only its owner or an administrator may keep '{environment.ref}' warm")
        project = await self._catalog.find(environment.ref, call.caller)
        kept, ready = await self._warm_pools.ask(project, count)
        pool = WarmPool(environment=str(project.ref), count=count, kept=kept, ready=ready)
        return envelope.success(pool.model_dump(mode="json"))


def _told(used: ResourceUsage | None) -> dict[str, Any]:
    return asdict(used) if used else {}
