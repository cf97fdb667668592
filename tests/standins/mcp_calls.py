"""An MCP client of a few lines, for stand-ins of agents: a handshake, then calls."""

from __future__ import annotations

import itertools
import json
import urllib.request
from typing import Any


class Tools:
    """The tools of an MCP server."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url, self._headers, self._numbers = url, headers, itertools.count(1)
        self._post(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}
        )
        self._post("notifications/initialized", {}, is_notification=True)

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._post("tools/list", {})["tools"]
        return found

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        answer = self._post("tools/call", {"name": name, "arguments": arguments})
        return "\n".join(part["text"] for part in answer["content"])

    def _post(self, method: str, params: dict[str, Any], *, is_notification: bool = False) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if not is_notification:
            message["id"] = next(self._numbers)
        return posted(self._url, message, self._headers).get("result")


def posted(url: str, body: Any, headers: dict[str, str]) -> Any:
    """The object that a server answers."""
    head = {**headers, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as reply:
        text = reply.read()
    return json.loads(text) if text else {}
