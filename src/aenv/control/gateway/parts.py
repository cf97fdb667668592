"""The parts of a gateway, made from its settings. Which engine that is, `engine_choice.py` says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from starlette.responses import Response
from starlette.types import ASGIApp

from ... import __version__
from ...artifacts.data.builtin import Folders
from ...base import origins
from ...base.config import Project
from ...base.errors import Unavailable
from ...base.http1 import Pool
from ...base.settings import GatewaySettings
from ...base.supervision import Tasks
from ...engines.base import Engine, KeepsServices, LeadsToGateway, SharedByGateways
from ..board.account_marks import AccountMarks
from ..board.seats import Seats
from ..board.shared_memory import Board
from ..homes import disk_usage
from ..hub.blobs import open_blobs
from ..hub.checkouts import Checkouts
from ..hub.hub_routes import HubRoutes
from ..instances.admission import Rules
from ..instances.catalog import Catalog
from ..instances.creation import CreationMeans
from ..instances.creator import Creator
from ..instances.freezing import Freezing
from ..instances.instance_access import InstanceAccess
from ..instances.instance_changes import InstanceChanges
from ..instances.kinship import Kinship
from ..instances.leases import Leases
from ..instances.ledger import Ledger, Quotas
from ..instances.model_access import ModelRules
from ..instances.reclaim import Reclaim
from ..instances.supervisor import Supervisor
from ..instances.sweeper import Clock, Sweeper
from ..instances.this_gateway import ThisGateway
from ..instances.transitions import Transitions
from ..instances.upkeep import Upkeep
from ..instances.warm_pools import WarmPools
from ..services.service_routes import ServiceRoutes
from ..services.service_supervisor import ServiceSupervisor
from ..serving import envelope, memory, pages
from ..serving.account_routes import AccountRoutes
from ..serving.accounts import Accounts, Role
from ..serving.centre import Centre
from ..serving.listeners import answering
from ..serving.metrics import Metrics
from ..serving.named_secrets import Secrets
from ..serving.queue import Queue
from ..serving.rates import Rates
from ..serving.routes import Front, Route, RouteCall
from ..serving.secret_routes import SecretRoutes
from ..stores.base import SharedStore, Store
from ..stores.opening import open_store
from .child_routes import ChildRoutes
from .data_request import DataRules
from .engine_choice import engine_of
from .home import Home
from .inside_routes import InsideRoutes
from .instance_routes import InstanceRoutes
from .lease_routes import LeaseRoutes
from .live_routes import LiveRoutes
from .load_history import LoadHistory
from .proxy import Proxy
from .rootfs_routes import RootfsRoutes
from .self_checks import SelfChecks
from .terminal_routes import TerminalRoutes
from .tokens import Tokens
from .usage_routes import UsageRoutes

logger = logging.getLogger("aenv.control.gateway")

_MEASURE_EVERY = 3600.0  # seconds: to walk through a large home folder takes a while

ReadyCheck = Callable[[], Awaitable[None]]


@dataclass
class Shared:
    """What hub and gateway both stand on."""

    board: Board
    store: SharedStore
    accounts: Accounts
    metrics: Metrics
    front: Front
    metrics_front: Front
    is_local: bool
    """Whether only this machine can reach the control port."""
    hub: HubRoutes
    checkouts: Checkouts
    folders: Folders
    built_in: Folders
    secrets: Secrets

    def routes(self, check_ready: ReadyCheck | None = None) -> list[Route]:
        """Environments, accounts, and what operators ask. `check_ready`: else that the store answers."""
        ready = partial(_ready, check_ready or self.check_ready)
        return [
            *self.hub.routes(),
            *AccountRoutes(self.accounts).routes(),
            *Centre().routes(),
            Route(
                "GET",
                "/health",
                self._health,
                None,
                "whether this server answers",
                reply=dict[str, str],
            ),
            Route("GET", "/ready", ready, None, "whether requests should come here now", reply=dict[str, str]),
            self._metrics_route(None if self.is_local else Role.VIEWER),
        ]

    def metrics_app(self) -> ASGIApp:
        """`/metrics` alone, for an address that the operator has chosen for it, open to every client there."""
        return self.metrics_front.app([self._metrics_route(None)])

    async def check_ready(self) -> None:
        """Return when the store answers; Unavailable otherwise."""
        await self.store.totals("instances")

    async def _health(self, call: RouteCall) -> Response:
        return envelope.success({"status": "healthy", "version": __version__})

    def _metrics_route(self, access: Role | None) -> Route:
        return Route("GET", "/metrics", self._metrics, access, "counters, for Prometheus", media="text/plain")

    async def _metrics(self, call: RouteCall) -> Response:
        # Names of environments and experiments are not for every caller.
        text = self.metrics.text(names=await self.front.is_admin(call))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@contextlib.asynccontextmanager
async def shared(
    settings: GatewaySettings, folders: Folders, built_in: Folders | None = None
) -> AsyncIterator[Shared]:
    """The store and what stands on it, open inside the `async with`."""
    home = settings.home.expanduser()
    async with (
        open_store(settings.store, home) as store,
        open_blobs(settings.blobs, home) as blobs,
        contextlib.AsyncExitStack() as exits,
    ):
        board = Board(settings.workers + 1)
        exits.callback(board.close)
        # Asked again with each request: when a gateway starts, its store may not say yet whether there are any.
        local = origins.is_loopback(settings.host)
        accounts = Accounts(store, needed=not (local or settings.insecure), marks=AccountMarks(board))
        metrics = Metrics(board)
        rates = Rates(store, settings.rate_limit, settings.route_limits)
        front = Front(accounts, rates, metrics, loopback_only=local, allowed=settings.allow_origins)
        metrics_host = settings.metrics_address[0] if settings.metrics_address else settings.host
        metrics_front = Front(accounts, rates, metrics, loopback_only=origins.is_loopback(metrics_host))
        hub, built_in = HubRoutes(store, blobs, home, folders, built_in), built_in or {}
        checkouts = Checkouts(home, blobs)
        yield Shared(
            board,
            store,
            accounts,
            metrics,
            front,
            metrics_front,
            local,
            hub,
            checkouts,
            folders,
            built_in,
            Secrets(store),
        )


@dataclass
class Parts:
    """What makes a gateway of the shared parts."""

    shared: Shared
    engine: Engine
    home: Home
    transitions: Transitions
    supervisor: Supervisor
    instances: InstanceAccess
    leases: Leases
    live: LiveRoutes
    creator: Creator
    services: ServiceSupervisor
    upkeep: Upkeep
    sweeper: Sweeper
    freezing: Freezing
    reclaim: Reclaim
    warm_pools: WarmPools
    catalog: Catalog
    tokens: Tokens
    pool: Pool
    proxy: ASGIApp
    data_rules: DataRules
    check_ready: ReadyCheck
    """Unavailable, with the reason, while requests should go elsewhere."""
    settings: GatewaySettings
    _tried: asyncio.Event = field(default_factory=asyncio.Event)

    def routes(self, data_port: int | None) -> list[Route]:
        public_url = self.settings.public_url
        return [
            *InstanceRoutes(
                self.instances,
                self.creator,
                self.leases,
                self.tokens,
                self.pool,
                data_port=data_port,
                public_url=public_url,
            ).routes(),
            *LeaseRoutes(self.leases).routes(),
            *TerminalRoutes(self.instances, self.shared.accounts).routes(),
            *self.live.routes(),
            *InsideRoutes(
                self.instances,
                self.tokens,
                self.pool,
                self.shared.secrets,
                data_port=data_port,
                public_url=public_url,
                max_body_bytes=self.settings.max_body_bytes,
            ).routes(),
            *UsageRoutes(self.instances, self.services, self.warm_pools, self.catalog, self.shared.hub).routes(),
            *RootfsRoutes(self.catalog, self.engine).routes(),
            *ServiceRoutes(self.services, data_port=data_port, public_url=public_url).routes(),
            *SecretRoutes(self.shared.secrets).routes(),
            *self.shared.routes(self.check_ready),
        ]

    async def run(self) -> None:
        """Take over what an earlier gateway left, as soon as the store answers; then look after it all."""
        async with Tasks() as tasks:
            tasks.keep("signs of life", self.upkeep.live)
            tasks.keep("the history of the load", self.live.history.run)
            while True:
                try:
                    await self._begin()
                    break
                except Unavailable as error:
                    logger.warning("instances cannot be created yet: %s", error)
                    self._tried.set()
                    await asyncio.sleep(error.retry_after)
            self.supervisor.refusal = self.services.refusal = None
            self._tried.set()
            tasks.keep("the sweeper", lambda: self.sweeper.run(self.supervisor.check))
            tasks.keep("freezing", self.freezing.run)
            tasks.keep("reclaim", self.reclaim.run)
            tasks.keep("leases", self.leases.run)
            tasks.keep("the warm pools", self.warm_pools.run)
            tasks.create_task(self.warm_pools.begin(self._projects()))
            tasks.keep("upkeep", self.upkeep.run)
            tasks.keep("disk use", self._measure_disk)

    async def begun(self) -> None:
        """Return when everything was taken over, or the store turned out not to answer now."""
        await self._tried.wait()

    async def idle(self, seconds: float) -> None:
        """Return when there has been no instance for so long, and there is no service."""
        while True:
            await self.supervisor.idle(seconds)
            if not self.services.any:
                return
            await asyncio.sleep(max(seconds, 1.0))

    async def _begin(self) -> None:
        await self.upkeep.announce()
        await self.tokens.load(self.shared.store)
        self.shared.board.key = self.tokens.key
        is_alone = await _is_alone(self.engine, self.home, self.tokens)
        running = await self.engine.running()
        replicas: set[str] = set()
        if is_alone or isinstance(self.engine, KeepsServices):  # those every gateway sends requests to
            replicas = await self.services.adopt(running)
        if is_alone:
            await self.upkeep.take_over_all(running, replicas)
        self.home.share()

    async def _measure_disk(self) -> None:
        home = self.settings.home.expanduser()
        while True:
            ended = threading.Event()
            try:
                sizes = await asyncio.to_thread(disk_usage.sizes, home, ended.is_set)
            finally:
                ended.set()  # a thread cannot be cancelled, and a gateway that stops would wait for it
            self.shared.metrics.home_takes(sizes, disk_usage.free_bytes(home))
            await asyncio.sleep(_MEASURE_EVERY)

    def _projects(self) -> list[Project]:
        known = [project for versions in self.shared.folders.values() for project in versions.values()]
        return [project for project in known if project.ref not in project.aliases]

    async def close(self) -> None:
        """End what runs, unless the settings keep it for the next gateway."""
        keep = self.settings.keep_instances
        self.leases.close()
        self.live.close()
        await self.warm_pools.close()
        await asyncio.gather(self.supervisor.close(keep=keep), self.services.close(keep=keep))
        await self.upkeep.resign()


@contextlib.asynccontextmanager
async def parts(
    settings: GatewaySettings,
    base: Shared,
    home: Home,
    *,
    engine: Engine | None = None,
    clock: Clock = time.monotonic,
) -> AsyncIterator[Parts]:
    """The parts, wired; nothing runs yet. `engine` and `clock` are for who composes a gateway of their own."""
    folder = settings.home.expanduser()
    here, quotas = _this_gateway(settings, home), _quotas(settings)
    ledger, sweeper, tokens = Ledger(base.store, quotas), Sweeper(clock), Tokens()
    changes, metrics = InstanceChanges(), base.metrics
    transitions = Transitions(ledger, changes)
    seats = Seats(base.board, demand_tokens=settings.require_data_token)
    catalog = Catalog(base.folders, base.hub, base.checkouts, folder, base.built_in)
    local = origins.is_loopback(settings.host)
    data_rules = DataRules(settings.max_body_bytes, local, allowed=settings.allow_origins)
    async with (
        contextlib.nullcontext(engine) if engine else engine_of(settings) as engine,
        Pool() as pool,
        Queue() as queue,
        Freezing(engine, ledger, settings.freeze_after, clock) as freezing,
        Supervisor(engine, ledger, transitions, sweeper, freezing, queue, metrics, here.name, seats) as supervisor,
        _services(settings, base, engine, catalog, home, quotas, here.rules) as services,
        contextlib.AsyncExitStack() as exits,
    ):
        await _refuse_strangers(engine, home, tokens, base.store)
        home = home.of(engine)
        here = replace(here, node=home.node)
        reclaim = Reclaim(freezing, supervisor, _or_part(settings.reclaim_below, 20))
        warm = WarmPools(engine, catalog, here, _or_part(settings.warm_memory, 10), clock)
        instances = InstanceAccess(
            engine, ledger, transitions, supervisor, freezing, home.node, demand_tokens=settings.require_data_token
        )
        means = CreationMeans(
            engine, catalog, ledger, transitions, supervisor, queue, metrics, reclaim, warm, base.secrets, here
        )
        creator = Creator(means)
        checks = await exits.enter_async_context(
            SelfChecks(instances, creator, catalog, base.store, pool, here.rules)
        )
        check_ready = partial(_check_ready, supervisor, base)
        proxy = Proxy(instances, services, base.accounts, tokens, pool, metrics, data_rules, checks, check_ready)
        children = ChildRoutes(Kinship(supervisor, catalog, base.accounts), creator, instances, tokens, proxy)
        await exits.enter_async_context(_children_of(engine, children))
        yield Parts(
            shared=base,
            engine=engine,
            home=home,
            transitions=transitions,
            supervisor=supervisor,
            instances=instances,
            leases=Leases(instances, base.accounts, metrics, settings.max_body_bytes),
            live=LiveRoutes(instances, changes, base.accounts, base.store, queue, quotas, LoadHistory(metrics)),
            creator=creator,
            services=services,
            upkeep=Upkeep(
                engine,
                catalog,
                ledger,
                transitions,
                supervisor,
                base.store,
                services.replica_ids,
                node=home.node,
                gateway=here.name,
            ),
            sweeper=sweeper,
            freezing=freezing,
            reclaim=reclaim,
            warm_pools=warm,
            catalog=catalog,
            tokens=tokens,
            pool=pool,
            proxy=pages.allowing(proxy, settings.allow_origins),
            data_rules=data_rules,
            check_ready=check_ready,
            settings=settings,
        )


@contextlib.asynccontextmanager
async def _children_of(engine: Engine, routes: ChildRoutes) -> AsyncIterator[None]:
    """Inside, instances reach these routes, where the engine can lead them there."""
    async with answering(routes) as connect:
        if isinstance(engine, LeadsToGateway):
            engine.lead_to(connect)
        yield


async def _is_alone(engine: Engine, home: Home, tokens: Tokens) -> bool:
    """Whether no other gateway that lives has made what runs."""
    if not isinstance(engine, SharedByGateways):
        return home.alone
    return await engine.join(tokens.installation, home.id if home.alone else "") and home.alone


async def _refuse_strangers(engine: Engine, home: Home, tokens: Tokens, store: Store) -> None:
    """Conflict where what this engine has made belongs to the gateways of another store."""
    if isinstance(engine, SharedByGateways):
        with contextlib.suppress(Unavailable):  # then `run` asks again
            await tokens.load(store)
            await _is_alone(engine, home, tokens)


def _services(
    settings: GatewaySettings,
    base: Shared,
    engine: Engine,
    catalog: Catalog,
    home: Home,
    quotas: Quotas,
    rules: Rules,
) -> ServiceSupervisor:
    return ServiceSupervisor(
        engine,
        catalog,
        base.store,
        base.metrics,
        base.secrets,
        node=home.of(engine).node,
        home=settings.home.expanduser(),
        start_timeout=settings.start_timeout,
        quotas=quotas,
        rules=rules,
    )


def _this_gateway(settings: GatewaySettings, home: Home) -> ThisGateway:
    rules = Rules(
        settings.data_roots,
        settings.data_folders,
        settings.home.expanduser(),
        settings.allow_network,
        settings.self_check,
        ModelRules(settings.model_urls, settings.model_key),
        own_templates=settings.engine == "kubernetes",
    )
    return ThisGateway(home.node, secrets.token_hex(8), settings.start_timeout, settings.keep_history, rules)


def _quotas(settings: GatewaySettings) -> Quotas:
    return Quotas(
        instances=settings.max_instances,
        cpu_milli=round(1000 * settings.capacity_cpus) if settings.capacity_cpus else None,
        memory_bytes=settings.capacity_memory_bytes,
        by_label=settings.max_instances_by_label,
    )


async def _check_ready(supervisor: Supervisor, base: Shared) -> None:
    if supervisor.refusal:
        raise Unavailable(supervisor.refusal)
    await base.check_ready()


async def _ready(check: ReadyCheck, call: RouteCall) -> Response:
    await check()
    return envelope.success({"status": "ready"})


def _or_part(size_bytes: int | None, part: int) -> int:
    """The size that was set, else so small a part of the host's memory."""
    return memory.total_bytes() // part if size_bytes is None else size_bytes
