"""The HTTP API of a Docker or podman engine, over its unix socket.

Only the requests that instances need, on the client that the gateway has anyway; docs/adr/0040 has the
reasons.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from ...base.addresses import Origin
from ...base.errors import AEnvError, ConnectFailed, InvalidRequest, NetworkError, Unavailable
from ...base.http1 import Pool, Response

_MAX_REPLY_BYTES = 64 << 20
_FRAME_HEAD_BYTES = 8


class DockerRefused(AEnvError):
    """What the engine of containers answers when it does not do what it was asked for."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.answered = status


def socket_path(host: str) -> str:
    """The path in "unix:///var/run/docker.sock", which is how DOCKER_HOST is written."""
    path = host.removeprefix("unix://")
    if not path.startswith("/"):
        raise InvalidRequest(
            f"cannot use the Docker engine at {host!r}: it must share this machine's files with the gateway; "
            "name its socket, as in 'unix:///var/run/docker.sock'"
        )
    return path


class DockerApi:
    """Requests to the engine behind a unix socket."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._path = socket_path(host)
        self._origin = Origin("docker", socket=self._path)
        self._pool = Pool()

    async def close(self) -> None:
        await self._pool.close()

    async def call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """What the engine answers, as JSON; None for an empty answer. DockerRefused, or Unavailable."""
        response = await self.response(method, path, body, **query)
        try:
            text = await response.read(_MAX_REPLY_BYTES)
        except NetworkError as error:
            raise self._broke_off(error.message) from error
        return json.loads(text) if text.strip() else None

    async def response(self, method: str, path: str, body: Any = None, **query: Any) -> Response:
        """The answer, whose body is still to be read, and which is not an error."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = [("content-type", "application/json")] if body is not None else []
        try:
            response = await self._pool.request(self._origin, method, _target(path, query), headers, content)
        except ConnectFailed as error:
            raise self._silent(error) from error
        except NetworkError as error:
            raise self._broke_off(error.message) from error
        if response.status >= 400:
            raise DockerRefused(_message(await response.read(_MAX_REPLY_BYTES)), response.status)
        return response

    async def hijacked(self, path: str, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request after whose answer both sides send bytes of their own."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError as error:
            raise self._silent(error) from error
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: docker\r\nconnection: Upgrade\r\nupgrade: tcp\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        try:
            writer.write(head.encode() + content)
            answer = await reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            if status >= 300:
                raise DockerRefused(_message(await reader.read(1 << 16)), status)
            # Docker answers 101, podman and old ones 200: the bytes follow in both cases.
        except (OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise self._broke_off(error) from error
        except BaseException:
            writer.close()
            raise
        return reader, writer

    def _broke_off(self, why: object) -> Unavailable:
        return Unavailable(f"the Docker engine at {self.host!r} broke off: {why}")

    def _silent(self, error: Exception) -> Unavailable:
        reason = getattr(error.__cause__ or error, "strerror", None) or error
        return Unavailable(
            f"no Docker engine answers at {self.host!r}: {str(reason).lower()}; "
            "start it, or name another with --docker-host or DOCKER_HOST"
        )


async def frames(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """The streams that are mixed in one: 1 for standard output and 2 for standard error, with what came there."""
    held = b""
    async for piece in pieces:
        held += piece
        while len(held) >= _FRAME_HEAD_BYTES:
            end = _FRAME_HEAD_BYTES + int.from_bytes(held[4:_FRAME_HEAD_BYTES])
            if len(held) < end:
                break
            yield held[0], held[_FRAME_HEAD_BYTES:end]
            held = held[end:]


def _target(path: str, query: Mapping[str, Any]) -> str:
    asked = {
        name: json.dumps(value) if isinstance(value, dict | list) else str(value) for name, value in query.items()
    }
    return quote(path) + (f"?{urlencode(asked)}" if asked else "")


def _message(text: bytes) -> str:
    try:
        said = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        said = text.decode(errors="replace")
    return str(said).strip()[:2000]
