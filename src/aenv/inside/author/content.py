"""What a tool returns, as MCP content: text, images, audio, blobs, and structured data."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# What makes a dict MCP content: its type, and the key that the type demands.
_MCP_PARTS = {
    "text": "text",
    "image": "data",
    "audio": "data",
    "resource": "resource",
    "resource_link": "uri",
}


@dataclass(frozen=True)
class Text:
    """A piece of text among other content parts."""

    text: str


@dataclass(frozen=True)
class Image:
    """A picture; the mime type is read from the bytes unless given."""

    data: bytes
    mime_type: str | None = None


@dataclass(frozen=True)
class Audio:
    """A sound."""

    data: bytes
    mime_type: str = "audio/wav"


@dataclass(frozen=True)
class Blob:
    """Any other bytes."""

    data: bytes
    mime_type: str = "application/octet-stream"
    uri: str = "aenv://result/blob"


class UnserialisableResult(TypeError):
    """The author's function returned something that has no JSON form."""


@dataclass(frozen=True)
class ToolOutput:
    """A tool's answer, as it goes on the wire."""

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False

    def as_result(self) -> dict[str, Any]:
        """The `result` of an MCP `tools/call`."""
        result: dict[str, Any] = {"content": self.content, "isError": self.is_error}
        if self.structured is not None:
            result["structuredContent"] = self.structured
        return result


def is_result(content: Any, structured: Any) -> bool:
    """Whether another server's words can be a result: parts that say their type, and an object or nothing."""
    return (
        isinstance(content, list)
        and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content)
        and isinstance(structured, dict | None)
    )


def failure(message: str) -> ToolOutput:
    """A tool that failed: a result for the agent, not an error of the server."""
    return ToolOutput([{"type": "text", "text": message}], is_error=True)


def to_output(value: Any, structure: Callable[[Any], Any]) -> ToolOutput:
    """`value` as content; `structure` gives the structured form, or None where the return type has none."""
    if isinstance(value, ToolOutput):  # another server's, which is passed on
        return value
    structured = structure(value)
    parts = as_parts(value)
    if parts is not None:
        return ToolOutput(parts, structured)
    jsonable = to_jsonable(value)
    if structured is None and isinstance(jsonable, dict):
        structured = jsonable
    return ToolOutput([_text(_dump(jsonable))], structured)


def as_parts(value: Any) -> list[dict[str, Any]] | None:
    """The content parts that `value` already is, or None when it is data to be written as JSON."""
    if value is None:
        return []
    part = _as_part(value)
    if part:
        return [part]
    if isinstance(value, list | tuple) and _holds_parts(value):
        return [part for item in value for part in _as_parts_of(item)]
    return None


def to_jsonable(value: Any) -> Any:
    """`value` as dicts, lists, strings, numbers; bytes in base64. UnserialisableResult says why not."""
    try:
        return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="null")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise UnserialisableResult(
            f"a result of type {type(value).__name__} has no JSON form ({error}); "
            "return dict, list, str, numbers, bytes, a pydantic model or a dataclass"
        ) from error


def image_type(data: bytes) -> str | None:
    """The mime type that the first bytes give away, or None."""
    for magic, mime_type in _MAGIC:
        if data.startswith(magic):
            return mime_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _as_part(value: Any) -> dict[str, Any] | None:
    match value:
        case str():
            return _text(value)
        case Text(text=text):
            return _text(text)
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            mime_type = image_type(data)
            return _as_part(Image(data, mime_type) if mime_type else Blob(data))
        case Image(data=data, mime_type=mime_type):
            mime_type = mime_type or image_type(data) or "application/octet-stream"
            return {"type": "image", "data": _base64(data), "mimeType": mime_type}
        case Audio(data=data, mime_type=mime_type):
            return {"type": "audio", "data": _base64(data), "mimeType": mime_type}
        case Blob(data=data, mime_type=mime_type, uri=uri):
            resource = {"uri": uri, "mimeType": mime_type, "blob": _base64(data)}
            return {"type": "resource", "resource": resource}
    return None


def _as_parts_of(item: Any) -> list[dict[str, Any]]:
    if isinstance(item, dict) and _is_mcp_part(item):
        return [item]
    parts = as_parts(item)
    return [_text(_dump(to_jsonable(item)))] if parts is None else parts


def _holds_parts(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a sequence is content parts: one of them is binary, or all are MCP content already."""
    binary = (bytes, bytearray, memoryview, Text, Image, Audio, Blob)
    if any(isinstance(item, binary) for item in values):
        return True
    return bool(values) and all(isinstance(item, dict) and _is_mcp_part(item) for item in values)


def _is_mcp_part(item: dict[str, Any]) -> bool:
    required = _MCP_PARTS.get(item.get("type", ""))
    return required is not None and required in item


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _dump(jsonable: Any) -> str:
    return to_json(jsonable).decode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
