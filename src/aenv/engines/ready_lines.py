"""What a runtime says once, when it serves or cannot: read as input of a program that may be hostile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..base.errors import StartFailed
from ..isolation.sandbox import protocol


async def read_ready(read: Callable[[], protocol.Ready | protocol.NotReady], what: str) -> protocol.Ready:
    """What `read` gives, in a thread: a line may be long. StartFailed, about `what`, when it does not serve."""
    try:
        said = await asyncio.to_thread(read)
    except protocol.Broken as error:
        raise StartFailed(f"{what} failed to load: {error}") from None
    if isinstance(said, protocol.NotReady):
        raise StartFailed(f"{what} failed to load: {said.error.strip()}")
    return said
