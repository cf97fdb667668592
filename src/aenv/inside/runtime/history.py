"""The last calls of an instance, with what they were given and how they went. In memory only; never in a log.

Every call pays for this, so a call only notes what is at hand; texts are made when a caller asks for them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Self

from ...base import masks, mcp, wire
from .calls import ReportProgress

REMEMBERED = wire.MAX_HISTORY_CALLS
_ENVELOPE = 1024  # bytes of a reply around its calls
_MAX_TEXT = 2048  # bytes of arguments, or of an error
_MAX_NAME = 128  # characters: callers may call what does not exist, under any name
_PART = 8  # characters that a part of a list or an object counts for
_CUT = "…"

ToolCaller = Callable[[str, Mapping[str, Any], ReportProgress | None], Awaitable[dict[str, Any]]]


class History:
    """What the last calls were; with `limit` 0, none."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._calls: deque[RecordedCall] = deque(maxlen=limit)
        self.is_kept = limit > 0
        self.masks = masks.NONE
        """What hides the secrets of the instance, before texts are cut: a part of one would not be found."""

    def call(
        self, kind: Literal["tool", "function", "reward"], name: str, arguments: Mapping[str, Any]
    ) -> RecordedCall:
        """`with history.call(…) as call:` remembers it when it is over; an exception makes it a failed one."""
        return RecordedCall(self._calls, kind, name, arguments, self.masks)

    def of_tools(self, call_tool: ToolCaller) -> ToolCaller:
        """`call_tool`, remembered."""
        if not self.is_kept:
            return call_tool

        async def remembered(
            name: str, arguments: Mapping[str, Any], report: ReportProgress | None
        ) -> dict[str, Any]:
            with RecordedCall(self._calls, "tool", name, arguments, self.masks) as call:
                result = await call_tool(name, arguments, report)
                call.gave(result)
                return result

        return remembered

    def as_list(self) -> list[dict[str, Any]]:
        """The calls, the newest last: as many of the newest as a reply may hold."""
        described: deque[dict[str, Any]] = deque()
        room = wire.MAX_HISTORY_BYTES - _ENVELOPE
        for call in reversed(self._calls):
            one = call.described()
            room -= len(mcp.dumps(one)) + 1
            if room < 0:
                break
            described.appendleft(one)
        return [*described]


class RecordedCall:
    """One call, remembered when it is over."""

    __slots__ = (
        "_arguments",
        "_began",
        "_calls",
        "_error",
        "_kind",
        "_masks",
        "_name",
        "_seconds",
        "_started",
        "result_bytes",
    )

    def __init__(
        self, calls: deque[RecordedCall], kind: str, name: str, arguments: Mapping[str, Any], hidden: masks.Masks
    ) -> None:
        if hidden:
            name, arguments = hidden.text(name), hidden.value(arguments)
        self._calls = calls
        self._masks = hidden
        self._kind = kind
        self._name = name[:_MAX_NAME]
        self._arguments = _short(arguments, [_MAX_TEXT])
        self._error: str | None = None
        self.result_bytes = 0

    def __enter__(self) -> Self:
        self._started = time.time()
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._seconds = time.perf_counter() - self._began
        if error is not None:
            self._error = self._masks.text(str(error) or type(error).__name__)[:_MAX_TEXT]
        self._calls.append(self)

    def gave(self, result: Mapping[str, Any]) -> None:
        """Note the MCP result of a tool: its size, and what it says when it is an error."""
        parts = result.get("content", ())
        for part in parts:
            text = part.get("text") or part.get("data") or part.get("resource", {}).get("blob") or ""
            self.result_bytes += len(text) if text.isascii() else len(text.encode(errors="replace"))
        if result.get("isError"):
            self._error = self._masks.text(parts[0].get("text", "") if parts else "")[:_MAX_TEXT]

    def described(self) -> dict[str, Any]:
        described = {
            "kind": self._kind,
            "name": _cut(self._name),
            "arguments": _cut(mcp.dumps(self._arguments).decode()),
            "started_at": wire.timestamp(self._started),
            "duration_ms": round(self._seconds * 1e3, 3),
            "ok": self._error is None,
            "result_bytes": self.result_bytes,
        }
        return described if self._error is None else {**described, "error": _cut(self._error)}


def _short(value: Any, room: list[int]) -> Any:
    """A copy of a JSON value, since its owner may change it, as far as there is room."""
    kind = type(value)
    if kind is str:
        left = room[0]
        room[0] = left - len(value)
        return value if room[0] >= 0 else value[: max(left, 0)] + _CUT
    if kind is dict:
        items = {}
        for name, item in value.items():
            if room[0] < _PART:
                items[_CUT] = _CUT
                break
            room[0] -= _PART + len(name)
            items[name[:_MAX_TEXT]] = _short(item, room)
        return items
    if kind is list:
        parts = []
        for item in value:
            if room[0] < _PART:
                parts.append(_CUT)
                break
            room[0] -= _PART
            parts.append(_short(item, room))
        return parts
    return value


def _cut(text: str) -> str:
    """`text` within the limit, with a mark where it was cut, and in UTF-8 whatever it holds."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= _MAX_TEXT:
        return encoded.decode()
    return encoded[: _MAX_TEXT - len(_CUT.encode())].decode(errors="ignore") + _CUT
