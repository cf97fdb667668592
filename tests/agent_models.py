"""What a scripted model says to ready agents, in the words of each API: calls of tools, then a last message."""

from __future__ import annotations

import json
from typing import Any

from tests.streaming_models import Scripted, Streamed, completion

Said = str | tuple[str, dict[str, Any]]
"""A text, or the name of a tool and its arguments."""


def chat(*said: Said) -> list[Scripted]:
    """Chat completions, which are not streamed."""
    return [_chat(number, one) for number, one in enumerate(said, 1)]


def _chat(number: int, said: Said) -> dict[str, Any]:
    more = {"object": "chat.completion", "created": 1, "model": "scripted"}
    if isinstance(said, str):
        return completion(said, **more)
    function = {"name": said[0], "arguments": json.dumps(said[1])}
    found = completion(None, [{"id": f"call_{number}", "type": "function", "function": function}], **more)
    found["choices"][0]["finish_reason"] = "tool_calls"
    return found


def messages(*said: Said) -> list[Scripted]:
    """Streams of Anthropic's messages."""
    return [_messages(number, one) for number, one in enumerate(said, 1)]


def whole_messages(*said: Said) -> list[Scripted]:
    """The same, not streamed."""
    return [_whole_message(number, one) for number, one in enumerate(said, 1)]


def _whole_message(number: int, said: Said) -> dict[str, Any]:
    if isinstance(said, str):
        block: dict[str, Any] = {"type": "text", "text": said}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": said[0], "input": said[1]}
    usage = {"input_tokens": 7, "output_tokens": 2}
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [block], "usage": usage}


def _messages(number: int, said: Said) -> Streamed:
    usage = {"input_tokens": 7, "output_tokens": 2}
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    begin = {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}
    if isinstance(said, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": said}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": said[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said[1])}
    why = "end_turn" if isinstance(said, str) else "tool_use"
    return Streamed(
        [
            {"type": "message_start", "message": begin},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
    )


def responses(*said: Said) -> list[Scripted]:
    """Streams of OpenAI's responses. A tool may be named with its namespace, as in "space/tool"."""
    return [_responses(number, one) for number, one in enumerate(said, 1)]


def whole_responses(*said: Said) -> list[Scripted]:
    """The same, not streamed."""
    return [_responses(number, one).events[-1]["response"] for number, one in enumerate(said, 1)]


def _responses(number: int, said: Said) -> Streamed:
    if isinstance(said, str):
        content = [{"type": "output_text", "text": said, "annotations": []}]
        item: dict[str, Any] = {"type": "message", "role": "assistant", "id": f"m{number}", "content": content}
    else:
        space, _, name = said[0].rpartition("/")
        call = {"name": name, "arguments": json.dumps(said[1]), "call_id": f"call_{number}"}
        item = {"type": "function_call", "id": f"f{number}", **call, **({"namespace": space} if space else {})}
    usage = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    reply = {"id": f"resp_{number}", "object": "response", "model": "scripted", "status": "completed"}
    return Streamed(
        [
            {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {
                "type": "response.completed",
                "response": {**reply, "output": [item], "usage": {**usage, **details}},
            },
        ]
    )
