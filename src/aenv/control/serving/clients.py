"""The client's end of a request: its body comes from there, and the work for it ends when it goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from types import TracebackType
from typing import Any

from starlette.types import Receive

from ...base.errors import InvalidRequest, TooLarge
from ...base.limits import spell_bytes

_PATIENCE = 60.0  # seconds without a single byte of a body that was announced


class Client:
    """`with Client(receive) as client`: leaves the block, cancelled, when the client disconnects.

    Nothing that the block did not finish is answered: the client is gone.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self.gone = False

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> bool:
        if self._watcher:
            self._watcher.cancel()
        if self.gone and kind is asyncio.CancelledError and self._task:
            # Our own cancellation ends here, unless another cancellation wants this task to end too.
            return self._task.uncancel() == 0
        return kind is Disconnected

    async def read(self, limit: int) -> bytes:
        """The whole body, of at most `limit` bytes."""
        parts = [chunk async for chunk in self.stream(limit)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def stream(self, limit: int) -> AsyncIterator[bytes]:
        """The body as it arrives. TooLarge, naming `limit`, once it is longer."""
        size = 0
        more = True
        while more:
            message = await self._next()
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
            yield chunk
        self.watch()

    def watch(self) -> None:
        """From now on notice when the client goes. The body must have been read, or be unwanted."""
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._cancel_when_gone())

    async def _next(self) -> MutableMapping[str, Any]:
        try:
            async with asyncio.timeout(_PATIENCE):
                message = await self._receive()
        except TimeoutError:
            raise InvalidRequest(f"the rest of the body did not come within {_PATIENCE:g} s") from None
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message

    async def _cancel_when_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._task:
            self._task.cancel()


class Disconnected(Exception):
    """The client went away before it had sent its whole body."""


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than the limit of {spell_bytes(limit)}")
