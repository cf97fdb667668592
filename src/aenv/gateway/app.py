"""The gateway as a program: where settings become parts, and the parts meet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from .. import origins
from ..engines.base import Engine
from ..errors import Forbidden, InvalidRequest
from ..http1 import Pool
from ..settings import GatewaySettings
from . import catalog, home, listeners
from .instances import Instances
from .proxy import Proxy
from .routes import Routes
from .sweeper import Sweeper
from .tokens import Tokens

logger = logging.getLogger("aenv.gateway")


@dataclass(frozen=True)
class GatewayAddress:
    """Where a gateway listens: the ports that it really has."""

    host: str
    port: int | None
    data_port: int | None
    socket: Path | None = None

    @property
    def url(self) -> str:
        """The control address, as `AENV_SYSTEM_URL` takes it."""
        return self._at(self.port)

    @property
    def data_url(self) -> str:
        """The data address, for clients that do not take it from an instance's `mcp_url`."""
        return self._at(self.data_port)

    def _at(self, port: int | None) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


Ready = Callable[[GatewayAddress], None]


def run(settings: GatewaySettings, ready: Ready | None = None) -> None:
    """`serve` on uvloop, as the main program of a process."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, ready))


async def serve(settings: GatewaySettings, ready: Ready | None = None) -> None:
    """Run a gateway until cancelled, or until SIGTERM or SIGINT; then its instances have ended too.

    `ready` is called with the address once requests are answered there.
    """
    async with gateway(settings) as (address, instances):
        with _stop_signals() as stop:
            logger.info("listening on %s", address.socket or f"{address.url}, data on {address.data_url}")
            if ready:
                ready(address)
            await _until_stopped(stop, instances, settings.idle_exit)


async def _until_stopped(stop: asyncio.Event, instances: Instances, idle_exit: float | None) -> None:
    """Return when told to stop, or after so many seconds without an instance."""
    async with asyncio.TaskGroup() as tasks:
        if idle_exit is not None:
            idle = tasks.create_task(instances.idle(idle_exit))
            idle.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if idle_exit is not None:
            idle.cancel()


@contextlib.asynccontextmanager
async def gateway(settings: GatewaySettings) -> AsyncIterator[tuple[GatewayAddress, Instances]]:
    """A gateway that answers requests inside the `async with`."""
    if not origins.is_loopback(settings.host) and not settings.insecure:
        raise Forbidden(
            f"refused to listen on {settings.host!r}: accounts are not configured, so anyone who reaches it "
            "could start instances; bind 127.0.0.1, or accept that with --insecure"
        )
    folder = settings.home.expanduser()
    known = catalog.read(settings.projects, folder)
    engine = _engine(settings)
    tokens = Tokens()
    sweeper = Sweeper()
    with _sockets(settings) as (control, data):
        address = GatewayAddress(settings.host, _port(control), _port(data), settings.socket)
        async with (
            home.shared(folder, engine),
            Pool() as pool,
            Instances(engine, known, sweeper, start_timeout=settings.start_timeout) as instances,
        ):
            loopback_only = origins.is_loopback(settings.host)
            proxy = Proxy(
                instances,
                tokens,
                pool,
                max_body_bytes=settings.max_body_bytes,
                loopback_only=loopback_only,
            )
            routes = Routes(instances, tokens, data_port=address.data_port, loopback_only=loopback_only)
            app = _with_data(routes.app(), proxy)
            async with (
                asyncio.TaskGroup() as tasks,
                listeners.serving(app, control),
                listeners.serving(proxy, data),
            ):
                sweeping = tasks.create_task(sweeper.run(instances.check))
                try:
                    yield address, instances
                finally:
                    sweeping.cancel()
                    # Before the listeners close: streams from instances end only with them.
                    await instances.close()


def _engine(settings: GatewaySettings) -> Engine:
    if settings.engine != "process":
        raise InvalidRequest(f"no engine {settings.engine!r}; this gateway has 'process'")
    from ..engines.process import ProcessEngine

    return ProcessEngine(settings.home)


def _with_data(control: ASGIApp, proxy: Proxy) -> ASGIApp:
    """The control port also takes data, in its path form."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = proxy if scope["path"].startswith("/instances/") else control
        await chosen(scope, receive, send)

    return app


@contextlib.contextmanager
def _sockets(settings: GatewaySettings) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """The listening sockets for control and for data: TCP first, where there is one."""
    control: list[socket.socket] = []
    data: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for port, listening in ((settings.port, control), (settings.data_port, data)):
            if port is not None:
                listening.append(stack.enter_context(listeners.bind_tcp(settings.host, port)))
        if settings.socket:
            control.append(stack.enter_context(listeners.bind_unix(settings.socket)))
            stack.callback(settings.socket.unlink, missing_ok=True)
        yield control, data


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
