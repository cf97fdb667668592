"""Putting a loaded environment on a socket: the composition root of the runtime."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from ... import __version__
from ...base import composition, origins
from ...base.errors import InvalidRequest
from ...base.limits import MAX_BODY_BYTES
from ..author.inject import Context
from ..author.registry import Registry
from .app import App
from .calls import Calls
from .fastmcp import FastMcpSurface, find_server
from .history import REMEMBERED, History
from .http import Listener
from .mcp_http import McpEndpoint
from .mcp_methods import Methods
from .surface import RegistrySurface, Surface

_MAX_CONTROL_BODY_BYTES = 1 << 20


@dataclass(frozen=True)
class ServedEnvironment:
    """What an environment offers, ready to be served over any transport."""

    registry: Registry
    surface: Surface
    own: RegistrySurface
    """What of the surface is the environment's own registry."""
    calls: Calls
    history: History
    methods: Methods
    tools: list[dict[str, Any]]

    def begin(self, context: Context, timeout: float | None) -> None:
        """Whose it is, where that was not known before."""
        self.calls.begin(context, timeout)
        self.history.masks = self.calls.masks

    async def join_parts(self) -> None:
        """Return when the parts of a composed environment are ready: its tools are theirs, too, from then on."""
        context = self.calls.context
        if not context.variables.get(composition.VARIABLE):
            return
        from .joined_parts import JoinedParts  # an HTTP client, which other environments do not need

        parts = JoinedParts()
        await parts.join(context.variables, [tool["name"] for tool in self.tools])
        self.own.parts = parts
        self.calls.context = replace(context, parts=parts)
        self.tools[:] = await self.surface.tools()


@asynccontextmanager
async def offered(
    registry: Registry,
    modules: Iterable[ModuleType],
    context: Context,
    *,
    timeout: float | None,
    name: str,
    remembered: int = REMEMBERED,
) -> AsyncIterator[ServedEnvironment]:
    """The environment's offer, with a history of that many calls; its resources are closed at the end."""
    history = History(remembered)
    async with AsyncExitStack() as stack:
        calls = await stack.enter_async_context(Calls(context, timeout=timeout))
        history.masks = calls.masks
        own = RegistrySurface(registry, calls)
        surface: Surface = own
        server = find_server(modules)
        if server is not None:
            surface = await stack.enter_async_context(FastMcpSurface(server, own))
        methods = Methods(surface, history, name, __version__)
        yield ServedEnvironment(registry, surface, own, calls, history, methods, await surface.tools())


def app_of(offer: ServedEnvironment, *, loopback_only: bool) -> App:
    endpoint = McpEndpoint(offer.methods)
    return App(offer.registry, offer.surface, offer.calls, offer.history, endpoint, loopback_only=loopback_only)


@asynccontextmanager
async def served(
    offer: ServedEnvironment, data: socket.socket, control: socket.socket | None = None
) -> AsyncIterator[Listener]:
    """Inside, the offer is served on `data`; and on `control` the control routes for this one instance."""
    is_unix = data.family == socket.AF_UNIX
    loopback_only = not is_unix and origins.is_loopback(data.getsockname()[0])
    app = app_of(offer, loopback_only=loopback_only)
    async with (
        Listener(app.handle, max_body_bytes=MAX_BODY_BYTES) as listener,
        AsyncExitStack() as stack,
    ):
        await listener.listen(data)
        if control:
            from .control import ControlApp  # its models cost 30 ms that an ordinary instance does not need

            environment = offer.calls.context.environment
            routes = ControlApp(environment, offer.tools, listener.port, loopback_only=loopback_only)
            second = Listener(routes.handle, max_body_bytes=_MAX_CONTROL_BODY_BYTES)
            await (await stack.enter_async_context(second)).listen(control)
        yield listener


def bind(host: str, port: int, flag: str) -> socket.socket:
    """A TCP socket bound to the address; InvalidRequest names the `flag` that chooses another."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequest(f"cannot listen on {host}:{port}: {reason}; choose another with {flag}") from error
    return sock
