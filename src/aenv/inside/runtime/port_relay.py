"""Lets an engine reach a port of a container that has a network of its own, or none.

    python3 -P -m aenv.inside.runtime.port_relay PORT SOCKET
    python3 -P -m aenv.inside.runtime.port_relay PORT

Connections to the unix socket, which lies in a folder that the engine shares, go to the port on the container's
loopback. Without a socket they come to a free port of all its addresses, and bring a token first, which is the
first line of standard input: others get no answer. Prints `listening` and that port once it does, or `refused`
when nothing listens on the port. Ends when standard input does, or a minute after the last connection. The
standard library alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import sys

_HOSTS = ("127.0.0.1", "::1")
_IDLE = 60.0  # seconds
_PATIENCE = 10.0  # seconds for a connection to bring its token
_PIECE_BYTES = 64 << 10


class PortRelay:
    def __init__(self, port: int, token: bytes = b"") -> None:
        self._port = port
        self._token = token
        self._open = 0
        self.used = asyncio.Event()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the port. OSError when there can be none."""
        for host in _HOSTS[:-1]:
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(host, self._port)
        return await asyncio.open_connection(_HOSTS[-1], self._port)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self.used.set()
        try:
            with contextlib.closing(writer), contextlib.suppress(OSError):
                if not await self._may(reader):
                    return
                there, back = await self.connect()
                with contextlib.closing(back):
                    await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            self._open -= 1

    async def _may(self, reader: asyncio.StreamReader) -> bool:
        """Whether the connection has brought the token, which is taken off it."""
        with contextlib.suppress(asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                return hmac.compare_digest(await reader.readexactly(len(self._token)), self._token)
        return False

    async def until_idle(self) -> None:
        while True:
            self.used.clear()
            try:
                async with asyncio.timeout(_IDLE):
                    await self.used.wait()
            except TimeoutError:
                if not self._open:
                    return


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, and then its end."""
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def _serve(port: int, path: str) -> None:
    relay = PortRelay(port, b"" if path else _line())
    try:
        _, probe = await relay.connect()
    except OSError:
        os.write(1, b"refused\n")
        return
    probe.close()
    if path:
        _unlink(path)
        server = await asyncio.start_unix_server(relay.pass_on, path)
        os.write(1, b"listening\n")
    else:
        server = await asyncio.start_server(relay.pass_on, "0.0.0.0", 0)
        os.write(1, b"listening %d\n" % server.sockets[0].getsockname()[1])
    loop = asyncio.get_running_loop()
    left: asyncio.Future[None] = loop.create_future()

    def look() -> None:
        if not os.read(0, 1 << 12) and not left.done():
            left.set_result(None)

    loop.add_reader(0, look)
    waits = [asyncio.ensure_future(relay.until_idle()), left]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if path:
        _unlink(path)
    os._exit(0)  # connections that are left end with us


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _line() -> bytes:
    """The first line of standard input, without its end."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(1)
        line += byte
    return line[:-1]


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
