"""`wrap_agent`: a server elsewhere that is an agent, as an environment. It speaks A2A, or MCP.

It is asked from inside the instance, so the environment's network must lead there. A redirect is not followed:
headers may hold a key, which is for the server that was named.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ... import __version__
from ...base import mcp
from ...base.errors import ToolError, ToolServerError, ToolTimeoutError
from ..author.content import ToolOutput
from ..author.conversations import ChatSession, register_speaker
from ..author.registry import ToolDefinition, active_registry
from ..author.signature import Signature

_CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_MAX_ANSWER_BYTES = 16 << 20
_WAITING = ("submitted", "working")
_LOOK_AGAIN = 0.5  # seconds between looks at a task that goes on
_BAD_ENDS = ("failed", "canceled", "rejected", "auth-required", "unknown")


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
    if (protocol or ("mcp" if urlsplit(url).path.rstrip("/").endswith("/mcp") else "a2a")) == "a2a":
        register_speaker(A2aAgent(JsonServer(url, headers or {}, timeout)), name, timeout=timeout)
        return
    server = McpAgent(JsonServer(url, headers or {}, timeout))
    for tool in server.tools() if tools is None else tools:
        active_registry().add_tool(_remote_tool(server, tool, timeout))


class JsonServer:
    """A server that takes JSON-RPC by POST. Blocking: each call is made in a thread."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self.url = url
        self._headers = {"Accept": "application/json, text/event-stream", **headers}
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._opener = build_opener(_NoRedirect)

    def rpc(
        self, url: str, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[Any, HTTPMessage]:
        """The result of a method, and the headers of the answer. ToolServerError carries the server's error."""
        id = next(self._ids)
        body, head = self.send(url, mcp.request(id, method, params), headers)
        for message in _messages(body, head.get_content_type()):
            if isinstance(message, dict) and message.get("id") == id and "method" not in message:
                if "error" in message:
                    error = message["error"]
                    raise ToolServerError(f"{url} answered {method} with an error: {error.get('message', error)}")
                return message.get("result"), head
        raise ToolServerError(f"{url} answered {method} with something that is not JSON-RPC")

    def send(
        self, url: str, message: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, HTTPMessage]:
        """A POST of `message`, or a GET without one: the body of the answer, and its headers."""
        content = None if message is None else mcp.dumps(message)
        kind = {"Content-Type": "application/json"} if content else {}
        request = Request(url, content, {**self._headers, **kind, **(headers or {})})
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                body = answer.read(_MAX_ANSWER_BYTES + 1)
                head: HTTPMessage = answer.headers
        except HTTPError as error:
            with error:
                raise ToolServerError(f"{url} answered {error.code}", status_code=error.code) from None
        except TimeoutError:
            raise ToolTimeoutError(f"{url} did not answer within {self._timeout:g} s") from None
        except (URLError, HTTPException, OSError) as error:
            raise ToolServerError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None
        if len(body) > _MAX_ANSWER_BYTES:
            raise ToolServerError(f"{url} answered with more than {_MAX_ANSWER_BYTES >> 20} MiB")
        return body, head


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _messages(body: bytes, kind: str) -> list[Any]:
    """The JSON-RPC messages of an answer: one, or those of an event stream."""
    try:
        if kind == "text/event-stream":
            return [mcp.loads(event) for event in mcp.SseParser().feed(body + b"\n\n")]
        return [mcp.loads(body)]
    except ValueError:
        return []


class A2aAgent:
    """An agent that speaks A2A; each session is a context there."""

    description: str | None = None
    parameters: Mapping[str, inspect.Parameter] = {}
    hints: Mapping[str, Any] = {}

    def __init__(self, server: JsonServer) -> None:
        self._server = server
        self._endpoint = ""

    async def reply(self, message: str, conversation: ChatSession, given: Mapping[str, Any]) -> AsyncIterator[Any]:
        yield await asyncio.to_thread(self._ask, message, conversation)

    def _ask(self, text: str, conversation: ChatSession) -> str:
        self._endpoint = self._endpoint or self._find()
        parts = [{"kind": "text", "text": text}]
        message = {"kind": "message", "role": "user", "parts": parts, "messageId": uuid.uuid4().hex}
        params = {"message": {**message, **(conversation.state or {})}}
        result = _object(self._server.rpc(self._endpoint, "message/send", params)[0])
        while (state := _state(result)) in _WAITING:
            time.sleep(_LOOK_AGAIN)  # a task does not say when it is done, unless one listens to a stream
            result = _object(self._server.rpc(self._endpoint, "tasks/get", {"id": result.get("id")})[0])
        if state in _BAD_ENDS:
            raise ToolServerError(f"{self._server.url}: the task ended as {state}: {_said(result)}")
        known = {"contextId": result.get("contextId")}
        if state == "input-required":  # the next message goes on with it
            known["taskId"] = result.get("id")
        conversation.state = {name: value for name, value in known.items() if value}
        return _said(result)

    def _find(self) -> str:
        """Where its card says that it is asked: on the server that was named, and no other."""
        for path in _CARDS:
            try:
                card = mcp.loads(self._server.send(urljoin(self._server.url, path), None)[0])
                said = urljoin(self._server.url, str(card.get("url") or self._server.url))
            except (ToolServerError, ValueError, AttributeError):
                continue
            return said if urlsplit(said)[:2] == urlsplit(self._server.url)[:2] else self._server.url
        return self._server.url


def _object(result: Any) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise ToolServerError("the agent answered with something that is neither a message nor a task")
    return result


def _state(result: Mapping[str, Any]) -> str:
    """Of a task; empty for a message."""
    status = result.get("status")
    return str(status.get("state", "")) if isinstance(status, dict) else ""


def _said(result: Mapping[str, Any]) -> str:
    """The text of a message, or of a task: its artifacts, else what its status says."""
    status = result.get("status")
    artifacts = [part for one in result.get("artifacts") or [] for part in one.get("parts") or []]
    told = ((status.get("message") or {}).get("parts") or []) if isinstance(status, dict) else []
    parts = result.get("parts") or artifacts or told
    return "\n".join(part["text"] if "text" in part else mcp.dumps(part).decode() for part in parts)


class McpAgent:
    """An MCP server of the handshake era; one session for the instance."""

    def __init__(self, server: JsonServer) -> None:
        self._server = server
        self._headers: dict[str, str] | None = None
        self._opening = threading.Lock()

    def tools(self) -> list[dict[str, Any]]:
        """As the server lists them, all pages."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self._call("tools/list", {"cursor": cursor} if cursor else {})
            found += page.get("tools", [])
            if not (cursor := page.get("nextCursor")):
                # What was opened now is not for the instances that are forked from this process.
                self._headers = None
                return found

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
        result = self._call("tools/call", {"name": name, "arguments": arguments})
        return ToolOutput(
            result.get("content") or [], result.get("structuredContent"), bool(result.get("isError"))
        )

    def _call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        headers = self._opened()
        try:
            return _object(self._server.rpc(self._server.url, method, params, headers)[0])
        except ToolServerError as error:
            if error.status_code != 404:
                raise
        # It has forgotten the session, so it has not looked at the call either.
        with self._opening:
            self._headers = None if self._headers is headers else self._headers
        return _object(self._server.rpc(self._server.url, method, params, self._opened())[0])

    def _opened(self) -> dict[str, str]:
        with self._opening:
            if self._headers is None:
                client = {"name": "aenv", "version": __version__}
                asked = {"protocolVersion": mcp.HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": client}
                result, head = self._server.rpc(self._server.url, "initialize", asked)
                headers = {mcp.VERSION_HEADER: str(_object(result).get("protocolVersion"))}
                if session := head.get(mcp.SESSION_HEADER):
                    headers[mcp.SESSION_HEADER] = session
                self._server.send(self._server.url, mcp.notification("notifications/initialized", {}), headers)
                self._headers = headers
            return self._headers


def _remote_tool(server: McpAgent, tool: Mapping[str, Any], timeout: float) -> ToolDefinition:
    name = str(tool["name"])

    async def call(**arguments: Any) -> Any:
        return await asyncio.to_thread(server.call, name, arguments)

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
