"""Lets an engine reach a port of a container that has a network of its own, or none.

    python3 -P -m aenv.inside.runtime.port_relay PORT SOCKET

Connections to the unix socket, which lies in a folder that the engine shares, go to the port on the container's
loopback. Prints `listening` once it does, or `refused` when nothing listens on the port. Ends when standard input
does, or a minute after the last connection. The standard library alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

_HOSTS = ("127.0.0.1", "::1")
_IDLE = 60.0  # seconds
_PIECE_BYTES = 64 << 10


class PortRelay:
    def __init__(self, port: int) -> None:
        self._port = port
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
                there, back = await self.connect()
                with contextlib.closing(back):
                    await asyncio.gather(copy(reader, back), copy(there, writer))
        finally:
            self._open -= 1

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
    relay = PortRelay(port)
    try:
        _, probe = await relay.connect()
    except OSError:
        os.write(1, b"refused\n")
        return
    probe.close()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server = await asyncio.start_unix_server(relay.pass_on, path)
    os.write(1, b"listening\n")
    loop = asyncio.get_running_loop()
    left: asyncio.Future[None] = loop.create_future()

    def look() -> None:
        if not os.read(0, 1 << 12) and not left.done():
            left.set_result(None)

    loop.add_reader(0, look)
    waits = [asyncio.ensure_future(relay.until_idle()), left]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os._exit(0)  # connections that are left end with us


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
