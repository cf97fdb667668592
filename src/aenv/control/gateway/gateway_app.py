"""The gateway as a program: where settings become parts, and the parts meet."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from ... import __version__
from ...artifacts.data import builtin
from ...base import limits, origins
from ...base.errors import Conflict, Forbidden, Unavailable
from ...base.settings import GatewaySettings
from ...engines.base import summary
from ..instances.catalog import read_folders
from ..serving import listeners, loops, openapi, pages
from ..serving.routes import Route
from . import home
from .forwarding import data_port
from .parts import Parts, Shared, parts, shared

logger = logging.getLogger("aenv.control.gateway")


@dataclass(frozen=True)
class GatewayAddress:
    """Where a gateway listens: the ports that it really has."""

    host: str
    port: int | None
    data_port: int | None
    socket: Path | None = None
    metrics: tuple[str, int] | None = None
    """Host and port where `/metrics` answers without a token."""
    engine: str = ""
    """The engine behind it, with what it isolates, in one line; empty for a hub."""

    @property
    def url(self) -> str:
        """The control address, as `AENV_SYSTEM_URL` takes it."""
        return _url(self.host, self.port)

    @property
    def data_url(self) -> str:
        """The data address, for clients that do not take it from an instance's `mcp_url`."""
        return _url(self.host, self.data_port)

    @property
    def metrics_url(self) -> str | None:
        """What Prometheus is told to scrape, where that has an address of its own."""
        return f"{_url(*self.metrics)}/metrics" if self.metrics else None


def _url(host: str, port: int | None) -> str:
    host = _own_address() if host in _EVERY_ADDRESS else host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


_EVERY_ADDRESS = ("0.0.0.0", "::", "")


def _own_address() -> str:
    """An address of this machine that others reach it by, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: the kernel only chooses the route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


_NEW_OBJECTS = 20_000  # a collection of so many takes about a millisecond

OnReady = Callable[[GatewayAddress], None]


def run(settings: GatewaySettings, ready: OnReady | None = None, *, hub_only: bool = False) -> None:
    """`serve`, or `serve_hub`, as the main program of a process."""
    limits.allow_many_open_files()
    # What no line of ours shows: finding it takes as long as a line itself.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    with asyncio.Runner(loop_factory=loops.factory()) as runner:
        runner.run((serve_hub if hub_only else serve)(settings, ready))


async def serve(settings: GatewaySettings, ready: OnReady | None = None) -> None:
    """Run a gateway until cancelled, or until SIGTERM or SIGINT; then its instances have ended too.

    `ready` is called with the address once requests are answered there.
    """
    async with gateway(settings) as (address, made):
        # What is there now stays, so the collector need not look at it again, nor at every few requests.
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, 20, 50)
        with _stop_signals() as stop:
            logger.info("listening on %s", address.socket or f"{address.url}, data on {address.data_url}")
            if ready:
                ready(address)
            await _until_stopped(stop, made, settings.idle_exit)


async def _until_stopped(stop: asyncio.Event, made: Parts, idle_exit: float | None) -> None:
    """Return when told to stop, or after so many seconds without an instance or a service."""
    async with asyncio.TaskGroup() as tasks:
        if idle_exit is not None:
            idle = tasks.create_task(made.idle(idle_exit))
            idle.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if idle_exit is not None:
            idle.cancel()


@contextlib.asynccontextmanager
async def gateway(settings: GatewaySettings) -> AsyncIterator[tuple[GatewayAddress, Parts]]:
    """A gateway that answers requests inside the `async with`."""
    folder = settings.home.expanduser()
    folders = read_folders(settings.projects, folder)
    with _sockets(settings) as (control, data, metrics):
        address = _address(settings, control, data, metrics)
        async with (
            shared(settings, folders, builtin.built_in()) as base,
            home.opened(folder) as own,
            parts(settings, base, own) as made,
        ):
            await _refuse_to_be_open(settings, base)
            app = _with_data(_app(base, made.routes(address.data_port)), made.proxy)
            async with (
                asyncio.TaskGroup() as tasks,
                listeners.serving(app, control),
                data_port.serving_data(made, data, address.data_port),
                listeners.serving(base.metrics_app(), metrics),
            ):
                running = tasks.create_task(made.run())
                try:
                    await made.begun()
                    yield replace(address, engine=f"{made.engine.name}: {summary(made.engine)}"), made
                finally:
                    running.cancel()
                    # Before the listeners close: streams from instances end only with them.
                    await made.close()


async def serve_hub(settings: GatewaySettings, ready: OnReady | None = None) -> None:
    """Run the hub alone: environments, bundles and accounts, without instances."""
    with _sockets(replace(settings, data_port=None)) as (control, data, metrics), _stop_signals() as stop:
        address = _address(settings, control, data, metrics)
        async with shared(settings, {}) as base:
            await _refuse_to_be_open(settings, base)
            async with (
                listeners.serving(_app(base, base.routes()), control),
                listeners.serving(base.metrics_app(), metrics),
            ):
                logger.info("the hub listens on %s", address.url)
                if ready:
                    ready(address)
                await stop.wait()


def _app(base: Shared, routes: list[Route]) -> ASGIApp:
    return base.front.app(openapi.routes(routes, __version__))


async def _refuse_to_be_open(settings: GatewaySettings, base: Shared) -> None:
    """Beyond this machine only with accounts, or when that was asked for."""
    if origins.is_loopback(settings.host) or settings.insecure:
        return
    with contextlib.suppress(Unavailable):  # then no caller gets in either, until the store says who may
        if await base.accounts.exist():
            return
        raise Forbidden(
            f"refused to listen on {settings.host!r}: there are no accounts, so anyone who reaches it could start "
            "instances; make one with 'aenv token create', bind 127.0.0.1, or accept that with --insecure"
        )


def _with_data(control: ASGIApp, proxy: ASGIApp) -> ASGIApp:
    """The control port also takes data, in its path form. A page that comes so is not one of its own."""
    proxy = pages.apart(proxy)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = proxy if scope["path"].startswith(("/instances/", "/services/", "/ports/")) else control
        await chosen(scope, receive, send)

    return app


@contextlib.contextmanager
def _sockets(
    settings: GatewaySettings,
) -> Iterator[tuple[list[socket.socket], list[socket.socket], list[socket.socket]]]:
    """The listening sockets for control, data and metrics: TCP first, where there is one."""
    control: list[socket.socket] = []
    data: list[socket.socket] = []
    metrics: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        refused: dict[str, Conflict] = {}
        for flag, port, listening in (
            ("--port", settings.port, control),
            ("--data-port", settings.data_port, data),
        ):
            if port is not None:
                try:
                    listening.append(stack.enter_context(listeners.bind_tcp(settings.host, port)))
                except Conflict as error:
                    refused[flag] = error
        if refused:  # the first, which says what to do about both
            first = next(iter(refused.values()))
            flags = " ".join(f"{flag} 0" for flag in refused)
            first.details["hint"] = f"{flags} for a free port, or another number"
            raise first
        if settings.socket:
            control.append(stack.enter_context(listeners.bind_unix(settings.socket)))
            stack.callback(settings.socket.unlink, missing_ok=True)
        if settings.metrics_address:
            metrics.append(stack.enter_context(listeners.bind_tcp(*settings.metrics_address)))
        yield control, data, metrics


def _address(
    settings: GatewaySettings,
    control: list[socket.socket],
    data: list[socket.socket],
    metrics: list[socket.socket],
) -> GatewayAddress:
    counted = (settings.metrics_address[0], _port(metrics) or 0) if settings.metrics_address else None
    return GatewayAddress(settings.host, _port(control), _port(data), settings.socket, counted)


def _port(listening: list[socket.socket]) -> int | None:
    tcp = [listener for listener in listening if listener.family != socket.AF_UNIX]
    return int(tcp[0].getsockname()[1]) if tcp else None


@contextlib.contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set, where signals arrive: in a process's main thread."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    in_main_thread = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGINT) if in_main_thread else ()
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
