"""`wrap_agent`: a server elsewhere that is an agent, as an environment. It speaks A2A, or MCP.

It is asked from inside the instance, so the environment's network must lead there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

from ... import __version__
from ...base import mcp
from ...base.errors import ToolError, ToolServerError
from ..author.content import ToolOutput, is_result
from ..author.conversations import register_speaker
from ..author.registry import ToolDefinition, active_registry
from ..author.signature import Signature
from ..author.threads import Threads
from .a2a_agent import A2aAgent
from .json_server import JsonServer

_MOST_PAGES = 100
"""Of a list of tools; a server could go on for ever."""


def wrap_agent(
    url: str,
    *,
    protocol: Literal["a2a", "mcp"] | None = None,
    headers: Mapping[str, str] | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    name: str = "chat",
    timeout: float = 600.0,
) -> None:
    """Offer the agent at `url`: with A2A as the tool `chat`, which `name` renames; with MCP all its tools.

    Without `protocol`, a URL whose path ends in "/mcp" is MCP. The tools of an MCP server are asked for at once,
    when the environment is loaded; `tools`, as `tools/list` describes them, saves that. ToolError when it fails.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ToolError(f"{url!r} is not the URL of an agent; it begins with 'http://' or 'https://'")
    if protocol not in (None, "a2a", "mcp"):
        raise ToolError(f"bad protocol {protocol!r} of the agent at {url!r}; use 'a2a' or 'mcp'")
    if (protocol or ("mcp" if urlsplit(url).path.rstrip("/").endswith("/mcp") else "a2a")) == "a2a":
        register_speaker(A2aAgent(JsonServer(url, headers or {}, timeout)), name, timeout=timeout)
        return
    server = McpAgent(JsonServer(url, headers or {}, timeout))
    for tool in server.tools() if tools is None else tools:
        _check(url, tool)
        active_registry().add_tool(_remote_tool(server, tool, timeout))


class McpAgent:
    """An MCP server of the handshake era; one session for the instance."""

    def __init__(self, server: JsonServer) -> None:
        self._server = server
        self._headers: dict[str, str] | None = None
        self._opening = threading.Lock()
        self._threads = Threads()

    def tools(self) -> list[dict[str, Any]]:
        """As the server lists them, all pages."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = self._call("tools/list", {"cursor": cursor} if cursor else {})
            if not isinstance(listed := page.get("tools", []), list):
                raise ToolServerError(f"{self._server.url} answered tools/list with something that is not a list")
            found += listed
            if not (cursor := page.get("nextCursor")):
                # What was opened now is not for the instances that are forked from this process.
                self._headers = None
                return found
        raise ToolServerError(f"{self._server.url} lists more than {_MOST_PAGES} pages of tools")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """What a tool says. A cancelled caller cancels it at the server."""
        id = self._server.new_id()
        try:
            params = {"name": name, "arguments": arguments}
            result = await self._threads.run(partial(self._call, "tools/call", params, id))
        except asyncio.CancelledError:
            # The cancelled caller does not wait for it.
            threading.Thread(target=self._cancel, args=(id,), daemon=True).start()
            raise
        content, structured = result.get("content") or [], result.get("structuredContent")
        if not is_result(content, structured):
            raise ToolServerError(f"{self._server.url} answered with something that is not the result of a tool")
        return ToolOutput(content, structured, bool(result.get("isError")))

    def _cancel(self, id: int) -> None:
        with suppress(ToolError):  # it may have ended, with its session
            gone = mcp.notification("notifications/cancelled", {"requestId": id})
            self._server.send(self._server.url, gone, self._opened())

    def _call(self, method: str, params: Mapping[str, Any], id: int | None = None) -> dict[str, Any]:
        headers = self._opened()
        try:
            return self._server.rpc(self._server.url, method, params, headers, id)[0]
        except ToolServerError as error:
            if error.status_code != 404:
                raise
        # It has forgotten the session, so it has not looked at the call either.
        with self._opening:
            self._headers = None if self._headers is headers else self._headers
        return self._server.rpc(self._server.url, method, params, self._opened(), id)[0]

    def _opened(self) -> dict[str, str]:
        with self._opening:
            if self._headers is None:
                client = {"name": "aenv", "version": __version__}
                asked = {"protocolVersion": mcp.HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": client}
                result, head = self._server.rpc(self._server.url, "initialize", asked)
                headers = {mcp.VERSION_HEADER: str(result.get("protocolVersion"))}
                if session := head.get(mcp.SESSION_HEADER):
                    headers[mcp.SESSION_HEADER] = session
                self._server.send(self._server.url, mcp.notification("notifications/initialized", {}), headers)
                self._headers = headers
            return self._headers


def _check(url: str, tool: Any) -> None:
    """ToolServerError where what describes a tool cannot be offered to a client."""
    schema = (Mapping, type(None))
    wanted: dict[str, Any] = {
        "name": str,
        "description": str | None,
        "inputSchema": schema,
        "outputSchema": schema,
    }
    if not isinstance(tool, Mapping):
        raise ToolServerError(f"{url} describes a tool that is not an object: {tool!r:.100}")
    for field, kind in wanted.items():
        if not isinstance(tool.get(field), kind):
            raise ToolServerError(f"{url} describes a tool whose field {field!r} is {tool.get(field)!r:.100}")
    if not isinstance((tool.get("inputSchema") or {}).get("properties", {}), Mapping):
        raise ToolServerError(
            f"{url} describes the tool {tool['name']!r:.100}, whose properties are not an object"
        )


def _remote_tool(server: McpAgent, tool: Mapping[str, Any], timeout: float) -> ToolDefinition:
    name = str(tool["name"])

    async def call(**arguments: Any) -> Any:
        return await server.call(name, arguments)

    signature = Signature(call)
    signature.name = name
    signature.input_schema = dict(tool.get("inputSchema") or {"type": "object", "properties": {}})
    signature.output_schema = tool.get("outputSchema")
    return ToolDefinition(
        name=name,
        signature=signature,
        description=tool.get("description"),
        title=tool.get("title"),
        annotations=tool.get("annotations"),
        timeout=timeout,
    )
