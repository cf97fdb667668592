"""The APIs that models are asked by: chat completions and responses of OpenAI's kind, messages of Anthropic's.

Each dialect says how an error looks, and reads requests and replies as messages of chat completions. What is read
comes from agents and models, so anything may be missing. Streams: `event_streams.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..trajectory import Message

JsonObject = Mapping[str, Any]


class Dialect(Protocol):
    """`name` is the path below `/v1`; `list_field` has what was said, as a list or a text."""

    name: str
    list_field: str

    def error(self, status: int, code: str, message: str) -> dict[str, Any]: ...

    def prompt(self, request: JsonObject) -> list[Message]: ...

    def said(self, reply: JsonObject) -> Message | None: ...

    def tools(self, request: JsonObject) -> list[dict[str, Any]]: ...


class ChatCompletions:
    """OpenAI's chat completions, whose messages are the ones that everything else becomes."""

    name, list_field = "chat/completions", "messages"

    def error(self, status: int, code: str, message: str) -> dict[str, Any]:
        kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "invalid_request_error"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def prompt(self, request: JsonObject) -> list[Message]:
        return _objects(request.get("messages"))

    def said(self, reply: JsonObject) -> Message | None:
        choices = _objects(reply.get("choices"))
        message = choices[0].get("message") if choices else None
        if not isinstance(message, dict):
            return None
        kept = {name: value for name, value in message.items() if value not in (None, [], "")}
        return {"role": "assistant", "content": None, **kept}

    def tools(self, request: JsonObject) -> list[dict[str, Any]]:
        return _objects(request.get("tools"))


class Responses(ChatCompletions):
    """OpenAI's responses: items in place of messages."""

    name, list_field = "responses", "input"

    def prompt(self, request: JsonObject) -> list[Message]:
        asked = request.get("input")
        items = [{"role": "user", "content": asked}] if isinstance(asked, str) else _objects(asked)
        system = request.get("instructions")
        begin: list[Message] = [{"role": "system", "content": system}] if isinstance(system, str) else []
        return [*begin, *_of_items(items)]

    def said(self, reply: JsonObject) -> Message | None:
        found = _of_items(_objects(reply.get("output")))
        return found[0] if found else None

    def tools(self, request: JsonObject) -> list[dict[str, Any]]:
        named = [tool for tool in _objects(request.get("tools")) if tool.get("type") == "function"]
        return [_function(tool, tool.get("parameters")) for tool in named]


class AnthropicMessages:
    """Anthropic's messages: blocks of content."""

    name, list_field = "messages", "messages"

    def error(self, status: int, code: str, message: str) -> dict[str, Any]:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            404: "not_found_error",
            413: "request_too_large",
            504: "timeout_error",
        }
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def prompt(self, request: JsonObject) -> list[Message]:
        system = _text(request.get("system"))
        begin: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*begin, *(found for one in _objects(request.get("messages")) for found in _of_blocks(one))]

    def said(self, reply: JsonObject) -> Message | None:
        found = _of_blocks({"role": "assistant", "content": reply.get("content")})
        return found[0] if found else None

    def tools(self, request: JsonObject) -> list[dict[str, Any]]:
        return [_function(tool, tool.get("input_schema")) for tool in _objects(request.get("tools"))]


DIALECTS: dict[str, Dialect] = {one.name: one for one in (ChatCompletions(), Responses(), AnthropicMessages())}


def usage(reply: JsonObject) -> tuple[int, int] | None:
    """The tokens read and written, as any of the APIs counts them; None where it does not."""
    counted = reply.get("usage")
    if not isinstance(counted, dict):
        return None
    cached = [counted.get(name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    read = counted.get("prompt_tokens", counted.get("input_tokens"))
    written = counted.get("completion_tokens", counted.get("output_tokens"))
    if not isinstance(read, int) and not isinstance(written, int):
        return None
    return sum(one for one in (read, *cached) if isinstance(one, int)), written if isinstance(written, int) else 0


def _of_items(items: Iterable[JsonObject]) -> list[Message]:
    """Items of responses as messages. What a model gives in several items is one message."""
    found: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            text = _text(item.get("output"))
            found.append({"role": "tool", "tool_call_id": item.get("call_id") or "", "content": text})
            continue
        role = "assistant" if kind in ("function_call", "reasoning") else str(item.get("role") or "")
        if role == "assistant":
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            message = found[-1]
            if kind == "function_call":
                call = _called(item.get("call_id"), item.get("name"), item.get("arguments"))
                message.setdefault("tool_calls", []).append(call)
            elif kind == "reasoning":
                message["reasoning_content"] = _text(item.get("summary")) or _text(item.get("content"))
            else:
                message["content"] = (message["content"] or "") + _text(item.get("content"))
        elif kind == "message" and role:
            found.append({"role": role, "content": _content(item.get("content"))})
    return found


def _of_blocks(message: JsonObject) -> list[Message]:
    """One message of Anthropic's as those of chat completions: answers of tools come before what the user adds."""
    role, content = str(message.get("role") or "user"), message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = _objects(content)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for block in blocks:
        by_kind.setdefault(str(block.get("type")), []).append(block)
    found: list[Message] = [
        {"role": "tool", "tool_call_id": one.get("tool_use_id") or "", "content": _text(one.get("content"))}
        for one in by_kind.get("tool_result", [])
    ]
    own: Message = {
        "role": role,
        "content": _content([one for one in blocks if one.get("type") in _SHOWN]) or None,
    }
    if thought := "".join(str(one.get("thinking") or "") for one in by_kind.get("thinking", [])):
        own["reasoning_content"] = thought
    if uses := by_kind.get("tool_use"):
        arguments = (json.dumps(one.get("input") or {}, ensure_ascii=False) for one in uses)
        own["tool_calls"] = [
            _called(one.get("id"), one.get("name"), text) for one, text in zip(uses, arguments, strict=True)
        ]
    return [*found, own] if role == "assistant" or own["content"] else found


def _content(value: Any) -> Any:
    """A text where it is only that; else parts as in chat completions."""
    if isinstance(value, str):
        return value
    parts = _objects(value)
    if all(isinstance(part.get("text"), str) for part in parts):
        return _text(parts)
    return [_part(part) for part in parts]


def _part(part: JsonObject) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    source = part.get("source")
    if isinstance(source, dict):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    return dict(part)


def _text(value: Any) -> str:
    """The text of a content, whichever way it is written."""
    if isinstance(value, str):
        return value
    return "".join(str(part["text"]) for part in _objects(value) if isinstance(part.get("text"), str))


def _called(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {"name": str(name or ""), "arguments": str(arguments or "")}
    return {"id": str(id or ""), "type": "function", "function": function}


def _function(tool: JsonObject, parameters: Any) -> dict[str, Any]:
    about = {"name": tool.get("name"), "description": tool.get("description") or ""}
    return {"type": "function", "function": {**about, "parameters": parameters or {"type": "object"}}}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


_SHOWN = ("text", "image", "document")
