"""HTTP proxies that the variables of a process name: HTTP_PROXY, HTTPS_PROXY and NO_PROXY.

An instance whose network policy is a list of hosts reaches them in this way only.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from ..base.addresses import Origin, parse_url
from ..base.errors import InvalidRequest
from ..base.origins import is_loopback

_MAX_HEAD_BYTES = 16 << 10


@dataclass(frozen=True)
class HttpProxy:
    """An HTTP proxy. Plain http goes to it with the whole URL as target, and https through a tunnel."""

    origin: Origin
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What it wants to have with a request: who asks."""

    async def tunnel(self, to: Origin) -> socket.socket:
        """A socket that is connected to `to`. OSError with the proxy's words when it refuses."""
        connection = await self._connect()
        try:
            loop = asyncio.get_running_loop()
            name = f"[{to.host}]:{to.port}" if ":" in to.host else f"{to.host}:{to.port}"
            lines = [f"CONNECT {name} HTTP/1.1", f"host: {name}", *(": ".join(pair) for pair in self.headers)]
            await loop.sock_sendall(connection, "\r\n".join([*lines, "", ""]).encode("latin-1"))
            head = b""
            while b"\r\n\r\n" not in head:
                # Nothing of the other side is read with it: in TLS the client speaks first.
                piece = await loop.sock_recv(connection, _MAX_HEAD_BYTES)
                head += piece
                if not piece or len(head) > _MAX_HEAD_BYTES:
                    raise OSError(f"the proxy {self.origin} did not answer in HTTP")
            version, _, answer = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            if not version.startswith("HTTP/1.") or not answer.startswith("2"):
                raise OSError(f"the proxy {self.origin} answered {answer[:300]}")
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self) -> socket.socket:
        """A connection to the first of the proxy's addresses that takes one."""
        failure = OSError("it has no address")
        try:
            where = self.origin.host, self.origin.port
            found = await asyncio.get_running_loop().getaddrinfo(*where, type=socket.SOCK_STREAM)
        except OSError as error:
            found, failure = [], error
        for family, _, _, _, address in found:
            try:
                return await _connected(family, address)
            except OSError as error:
                failure = error
        number = failure.errno or 0  # asyncio puts the address into `strerror`
        reason = os.strerror(number) if number > 0 else failure.strerror or failure
        raise OSError(f"the proxy {self.origin} cannot be reached: {reason}")


async def _connected(family: int, address: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def proxy_for(origin: Origin) -> HttpProxy | None:
    """The proxy by which this process reaches `origin`; None where it connects by itself."""
    from urllib.request import getproxies, proxy_bypass  # 20 ms that a process without a model does not need

    scheme = "https" if origin.tls else "http"
    url = getproxies().get(scheme)
    # No proxy elsewhere can reach this machine.
    if not url or is_loopback(origin.host) or proxy_bypass(f"{origin.host}:{origin.port}"):
        return None
    url = url if "//" in url else f"http://{url}"
    try:
        proxy, _ = parse_url(url)
    except InvalidRequest:
        raise InvalidRequest(_wrong(scheme)) from None  # without the value, which may hold a password
    if proxy.tls:
        raise InvalidRequest(_wrong(scheme))
    return HttpProxy(replace(proxy, source=f"{scheme.upper()}_PROXY"), _authorization(url))


def _wrong(scheme: str) -> str:
    return f"variable {scheme.upper()}_PROXY must be the address of an HTTP proxy, such as 'http://proxy:3128'"


def _authorization(url: str) -> tuple[tuple[str, str], ...]:
    parts = urlsplit(url)
    if not parts.username:
        return ()
    who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return (("proxy-authorization", f"Basic {base64.b64encode(who.encode()).decode()}"),)
