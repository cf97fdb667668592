"""Replies that come as a stream of events: each event as it is read, and the whole reply that they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import bounded_json

Event = dict[str, Any]
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")


def events(stream: bytes) -> Iterator[Event]:
    """The objects of a stream of server-sent events; `[DONE]` and what is not JSON is left out."""
    for block in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        try:
            found = bounded_json.loads(b"\n".join(lines))
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def assembled(dialect: str, stream: bytes) -> tuple[dict[str, Any], str]:
    """The reply that a stream makes, as far as it came, and why it is not whole: "" where it is."""
    found = list(events(stream))
    failure = next((one.get("error") for one in found if one.get("error")), None)
    read = {"chat/completions": _completion, "responses": _response}.get(dialect, _message)
    try:
        reply, is_whole = read(found)
    except (TypeError, AttributeError, LookupError, ValueError):  # a model's server may send anything
        return {}, "the stream is not one of this API"
    if failure:
        said = failure.get("message") if isinstance(failure, dict) else failure
        return reply, f"the model's server broke off: {said}"
    return reply, "" if is_whole else "the stream ended before the reply did"


def _completion(found: list[Event]) -> tuple[dict[str, Any], bool]:
    reply: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in found:
        reply |= {name: value for name, value in event.items() if name != "choices" and value is not None}
        for piece in event.get("choices") or []:
            index = piece.get("index") or 0
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add(choice["message"], piece.get("delta") or {})
            if piece.get("finish_reason"):
                choice["finish_reason"] = piece["finish_reason"]
            if piece.get("token_ids"):
                choice.setdefault("token_ids", []).extend(piece["token_ids"])
            if logprobs := (piece.get("logprobs") or {}).get("content"):
                choice.setdefault("logprobs", {"content": []})["content"].extend(logprobs)
    if found:
        reply |= {"object": "chat.completion", "choices": [choices[index] for index in sorted(choices)]}
    return reply, bool(choices) and all("finish_reason" in one for one in choices.values())


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            calls = message.setdefault("tool_calls", [])
            for piece in value or []:
                _add_call(calls, piece)
        elif value is not None:
            before = message.get(name)
            message[name] = before + value if name in _JOINED and before and isinstance(value, str) else value


def _add_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece.get("index")
    index = index if isinstance(index, int) and 0 <= index <= len(calls) else len(calls)
    if index == len(calls):
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[index], piece.get("function") or {}
    call["id"] = piece.get("id") or call["id"]
    for name in ("name", "arguments"):
        call["function"][name] += function.get(name) or ""


def _response(found: list[Event]) -> tuple[dict[str, Any], bool]:
    reply: dict[str, Any] = {}
    items: list[Any] = []
    for event in found:
        kind = event.get("type")
        if isinstance(event.get("response"), dict):
            reply = event["response"]
        if kind == "response.output_item.done":
            items.append(event.get("item"))
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return reply, True
    return ({**reply, "output": items} if reply else reply), False


def _message(found: list[Event]) -> tuple[dict[str, Any], bool]:
    reply: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    is_whole = False
    for event in found:
        index, delta = event.get("index") or 0, event.get("delta") or {}
        match event.get("type"):
            case "message_start":
                reply = dict(event.get("message") or {})
            case "content_block_start":
                blocks[index] = dict(event.get("content_block") or {})
            case "content_block_delta":
                block = blocks.setdefault(index, {})
                for name in ("text", "thinking", "signature"):
                    if isinstance(delta.get(name), str):
                        block[name] = (block.get(name) or "") + delta[name]
                inputs[index] = inputs.get(index, "") + str(delta.get("partial_json") or "")
            case "message_delta":
                reply |= delta
                reply["usage"] = {**(reply.get("usage") or {}), **(event.get("usage") or {})}
            case "message_stop":
                is_whole = True
    for index, text in inputs.items():
        if text:
            blocks[index]["input"] = _parsed(text)
    if reply:
        reply["content"] = [blocks[index] for index in sorted(blocks)]
    return reply, is_whole


def _parsed(text: str) -> Any:
    try:
        return bounded_json.loads(text)
    except ValueError:
        return text  # as far as it came
