"""Egress: the way out for an instance whose network policy is a list of hosts.

An HTTP proxy, CONNECT included; or a relay: to one model (`model_route.py`), or to the gateway
(`gateway_route.py`). It listens inside the instance's network namespace and connects from the host's: the instance
has no route out, only this. A name is looked up once, and the connection goes to the address that was judged: a
name that changes its mind gains nothing.

Not here: which destinations a policy opens (`destinations.py`), and the bytes of a connection (`exchanges.py`).
docs/adr/0027 says why it is our own.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ...base import logs
from ...base.errors import Conflict, Forbidden, InvalidRequest
from ...base.sockets import readable
from ...base.supervision import Tasks
from .destinations import Destination, EgressPolicy, IPAddress, is_own, unmapped
from .exchanges import ProxyRequest, ProxyTunnel, Refusal, parse_request, read_head, refuse
from .gateway_route import GatewayRoute
from .lookups import Lookups
from .model_route import ModelRoute

logger = logging.getLogger(__name__)

PORT = 3128
_PROXY = f"http://127.0.0.1:{PORT}"
_OWN = "localhost,127.0.0.1,::1"  # servers inside the instance are reached as ever
VARIABLES: Mapping[str, str] = {
    **{name: _PROXY for upper in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (upper, upper.lower())},
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _OWN),
}
"""What tells programs in the instance of the proxy."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
WayOut = EgressPolicy | ModelRoute | GatewayRoute


@dataclass(frozen=True)
class Bounds:
    """What one instance may cost; times in seconds."""

    connections: int = 256
    head_bytes: int = 16 << 10
    head_timeout: float = 10.0
    connect_timeout: float = 10.0
    idle_timeout: float = 600.0


class Egress:
    """The proxies of all instances; an `async with` that ends them all."""

    def __init__(self, *, resolve: Resolve | None = None, bounds: Bounds | None = None) -> None:
        self._resolve = resolve or Lookups()
        self._bounds = bounds or Bounds()
        self._served: dict[str, _Instance] = {}
        # Two descriptors a connection, and half of all: the gateway must be able to go on with its own work.
        self._connections = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4

    async def __aenter__(self) -> Egress:
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = [served.task for served in self._served.values()]
        self._served.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def serve(self, id: str, listener: socket.socket, policy: WayOut) -> None:
        """Let an instance out by `listener`, which listens inside, and which no other process holds from now on.

        A process that holds a copy can make it block, and the gateway with it.
        """
        if id in self._served:
            raise Conflict(f"instance {id!r} has its way out already")
        if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise InvalidRequest(f"what instance {id!r} gave to connect through does not listen")
        listener.setblocking(False)
        # What is accepted inherits it. Otherwise what an instance does not read could grow to megabytes each.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self._served[id] = _Instance(id, listener, policy, self._resolve, self._bounds, self._share)

    def serves(self, id: str) -> bool:
        return id in self._served

    async def stop(self, id: str) -> None:
        """Return when the instance's connections and its listener are closed. Unknown ids are fine."""
        served = self._served.pop(id, None)
        if served is None:
            return
        served.task.cancel()
        await asyncio.wait([served.task])
        for other in self._served.values():
            other.room.set()

    def _share(self) -> int:
        """How many connections an instance may have, so that one instance does not take those of all."""
        fair = self._connections // max(1, len(self._served))
        return min(self._bounds.connections, max(_LEAST_CONNECTIONS, fair))


class _Instance:
    """The proxy of one instance: a task that owns its listener and all its connections."""

    def __init__(
        self,
        id: str,
        listener: socket.socket,
        policy: WayOut,
        resolve: Resolve,
        bounds: Bounds,
        share: Callable[[], int],
    ) -> None:
        self._id = id
        self._listener = listener
        self._policy = policy
        self._resolve = resolve
        self._bounds = bounds
        self._share = share
        self._open = 0
        # Each is a thread, which a bad server can hold for a minute. Those of an instance wait for its own only.
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self.room = asyncio.Event()
        self.task = asyncio.create_task(self._run())
        # Here, since a task that is cancelled before its first step runs nothing of its own.
        self.task.add_done_callback(lambda _: listener.close())

    async def _run(self) -> None:
        logs.instance_id.set(self._id)
        try:
            async with Tasks() as self._tasks:
                while True:
                    # Above the limit they wait in the listener's queue, and nothing is spent on them.
                    while self._open >= self._share():
                        self.room.clear()
                        await self.room.wait()
                    await readable(self._listener.fileno())
                    await self._accept()
        except OSError as error:
            logger.warning("egress ended: %s", error)

    async def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            # Nothing tells when there is room again, and the listener stays readable: look once in a while.
            logger.warning("a connection must wait: %s", error)
            await asyncio.sleep(1)
            return
        client.setblocking(False)
        self._open += 1
        handling = self._tasks.create_task(self._handle(client))
        handling.add_done_callback(lambda _: self._closed(client))

    def _closed(self, client: socket.socket) -> None:
        client.close()
        self._open -= 1
        self.room.set()

    async def _handle(self, client: socket.socket) -> None:
        try:
            request, early = await self._request(client)
            with await self._connect(request.to) as upstream:
                logger.debug("egress to %s", request.to)
                await ProxyTunnel(client, upstream, request, self._bounds.idle_timeout).run(early)
        except Refusal as refusal:
            logger.debug("egress refused: %s", refusal)
            await refuse(client, refusal)
        except (OSError, EOFError) as error:
            logger.debug("an egress connection broke: %s", error)
        except Exception:  # boundary: a fault of ours with one connection must not end the others
            logger.exception("an egress connection failed")

    async def _request(self, client: socket.socket) -> tuple[ProxyRequest, bytes]:
        try:
            async with asyncio.timeout(self._bounds.head_timeout):
                head, early = await read_head(client, b"", self._bounds.head_bytes)
        except TimeoutError:
            raise Refusal(408, f"no request came within {self._bounds.head_timeout:g} s") from None
        if not isinstance(self._policy, EgressPolicy):
            return self._policy.request(head), early
        return parse_request(head), early

    async def _connect(self, to: Destination) -> socket.socket:
        if isinstance(self._policy, GatewayRoute):
            return await self._policy.connect()
        try:
            addresses = await self._addresses(to)
        except Forbidden as error:
            raise Refusal(403, error.message) from None
        problem = OSError("it has no address")
        for address in addresses:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            upstream = socket.socket(family, socket.SOCK_STREAM)
            try:
                upstream.setblocking(False)
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # The receive buffer grows to tens of megabytes otherwise, for a program that has stopped to read.
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _WINDOW)
                async with asyncio.timeout(self._bounds.connect_timeout / len(addresses)):
                    await asyncio.get_running_loop().sock_connect(upstream, (str(address), to.port))
                return upstream
            except BaseException as error:
                upstream.close()
                if not isinstance(error, OSError):
                    raise
                problem = error
        if isinstance(problem, TimeoutError):
            raise Refusal(504, f"cannot connect to '{to}': it does not answer")
        reason = os.strerror(problem.errno) if problem.errno else problem
        raise Refusal(502, f"cannot connect to '{to}': {reason}")

    async def _addresses(self, to: Destination) -> list[IPAddress]:
        """Those at which the policy lets `to` be reached. Forbidden when there are only others."""
        policy = self._policy
        if isinstance(to.host, str):
            if isinstance(policy, EgressPolicy):
                policy.check(to)
            found = [unmapped(ipaddress.ip_address(text)) for text in await self._looked_up(to.host, to)]
        else:
            found = [to.host]
        if not isinstance(policy, EgressPolicy):
            return found[:_TRIES]  # the one server that the operator has named, wherever it is
        allowed: list[IPAddress] = []
        refused: Forbidden | None = None
        for address in dict.fromkeys(found):
            try:
                policy.check(to, address)
                if is_own(address):
                    raise to.never()
                allowed.append(address)
            except Forbidden as error:
                refused = error
        if refused and not allowed:
            raise refused
        return allowed[:_TRIES]

    async def _looked_up(self, host: str, to: Destination) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._bounds.connect_timeout):
                await self._lookups.acquire()
                # Giving up does not end the thread: the lookup keeps its place until it is really over.
                lookup = self._tasks.create_task(self._resolved(host, to.port))
                lookup.add_done_callback(lambda _: self._lookups.release())
                found = await asyncio.shield(lookup)
        except TimeoutError:
            raise Refusal(504, f"cannot connect to '{to}': looking up its address took too long") from None
        if isinstance(found, OSError):
            raise Refusal(502, f"cannot connect to '{to}': {found.strerror or found}")
        return found

    async def _resolved(self, host: str, port: int) -> Sequence[str] | OSError:
        try:
            return await self._resolve(host, port)
        except OSError as error:
            return error


_BUFFER = 64 << 10
_WINDOW = 512 << 10
_LEAST_CONNECTIONS = 4
_LOOKUPS = 2  # of an instance at a time
_TRIES = 4  # addresses of one name
