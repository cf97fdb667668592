"""What an instance says of its last calls, read as what it is: the words of a program that may be hostile."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ...base.addresses import Origin
from ...base.errors import NetworkError, NotFound, TooLarge, ToolServerError, Unavailable
from ...base.http1 import Pool
from ...base.limits import spell_bytes
from ...base.wire import MAX_HISTORY_BYTES, MAX_HISTORY_CALLS


class _Call(BaseModel):
    kind: str
    name: str
    arguments: str
    started_at: str
    duration_ms: float
    ok: bool
    result_bytes: int
    error: str | None = None


class _Calls(BaseModel):
    calls: list[_Call] = Field(max_length=MAX_HISTORY_CALLS)


class _Reply(BaseModel):
    success: bool
    data: _Calls | None = None


async def ask(pool: Pool, origin: Origin, id: str) -> list[dict[str, Any]]:
    """The calls, the newest last. No more of a reply is read than a runtime of ours ever sends."""
    try:
        response = await pool.request(origin, "GET", "/history")
        body = await response.read(MAX_HISTORY_BYTES)
    except TooLarge:
        most = spell_bytes(MAX_HISTORY_BYTES)
        raise ToolServerError(f"instance {id!r} gave a history of its calls larger than {most}") from None
    except NetworkError:
        raise Unavailable(f"instance {id!r} does not answer; it may have just ended") from None
    if response.status == 404:
        raise NotFound(f"instance {id!r} keeps no history of its calls")
    # In a thread: while it is read, other callers are answered.
    calls = await asyncio.to_thread(_read, body)
    if calls is None:
        raise ToolServerError(f"instance {id!r} gave a history of its calls that is not one")
    return calls


def _read(body: bytes) -> list[dict[str, Any]] | None:
    """None when it is not the reply of a runtime. Nothing that does not belong there becomes an object of ours."""
    try:
        reply = _Reply.model_validate_json(body)
    except ValidationError:
        return None
    if not reply.success or reply.data is None:
        return None
    return [call.model_dump(exclude_none=True) for call in reply.data.calls]
