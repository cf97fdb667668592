"""A model's server that needs no model: a script that solves one task of gsm-tools.

with model() as endpoint:   # the one at OPENAI_BASE_URL where that is set, else the script
    ...                     # endpoint.url, endpoint.name, endpoint.key
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SCRIPT: list[tuple[str, dict[str, str]]] = [
    ("read_problem", {}),
    ("calculate", {"expression": "48 - 15"}),
    ("submit_answer", {"answer": "33"}),
]
_LAST = "There are 33 novels now."


@dataclass(frozen=True)
class Endpoint:
    """Where a model of OpenAI's chat completions is."""

    url: str
    name: str
    key: str


@contextmanager
def model() -> Iterator[Endpoint]:
    """The model to ask, for the time of a block."""
    url = os.environ.get("OPENAI_BASE_URL")
    if url:
        name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
        yield Endpoint(url, name, os.environ.get("OPENAI_API_KEY", "none"))
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ScriptHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", "script", "none")
    finally:
        server.shutdown()
        server.server_close()


class _ScriptHandler(BaseHTTPRequestHandler):
    """Takes the turn that the conversation has come to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = _message(body)
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
        }
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        frame = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
        content = json.dumps({**frame, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Nothing: the example prints what happens."""


def _message(body: dict[str, Any]) -> dict[str, Any]:
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    if turn < len(_SCRIPT):
        return _called(*_SCRIPT[turn])
    offered = [tool["function"]["name"] for tool in body.get("tools", ())]
    if "final_answer" in offered:  # agents of smolagents end with a call
        return _called("final_answer", {"answer": _LAST})
    return {"role": "assistant", "content": _LAST}


def _called(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}
