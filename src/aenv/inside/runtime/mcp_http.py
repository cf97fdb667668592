"""MCP over HTTP: POST /mcp for both eras, on one URL.

A reply is plain JSON; it becomes an event stream only when the call reports progress and the client takes
streams. A client of the handshake era gets a session id, used for one thing: to know whose call a
`notifications/cancelled` means. No session has to exist: a bare POST works.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from ...base import mcp
from .calls import ReportProgress, is_cancelled, reporter
from .mcp_methods import Methods, encode_result
from .messages import Reply, Request, Stream, json_reply, refuse

_HTTP_STATUS = {
    mcp.PARSE_ERROR: 400,
    mcp.INVALID_REQUEST: 400,
    mcp.INVALID_PARAMS: 400,
    mcp.HEADER_MISMATCH: 400,
    mcp.UNSUPPORTED_VERSION: 400,
    mcp.METHOD_NOT_FOUND: 404,
}


class McpEndpoint:
    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._running: dict[tuple[str, str | int], asyncio.Task[dict[str, Any]]] = {}

    async def handle(self, request: Request, stream: Stream) -> Reply | None:
        match request.method:
            case "POST":
                return await self._post(request, stream)
            case "DELETE":  # the end of a session: there is nothing to end
                return Reply(200)
        return refuse(405, "POST JSON-RPC messages here", (("allow", "POST, DELETE"),))

    async def _post(self, request: Request, stream: Stream) -> Reply | None:
        takes_json, takes_stream = _accepted(request.headers.get("accept", ""))
        if not takes_json and not takes_stream:
            return refuse(406, "accept must allow application/json or text/event-stream")
        try:
            message = mcp.loads(request.body)
        except ValueError as error:
            return _failed(None, mcp.RpcError(mcp.PARSE_ERROR, f"the body is not JSON: {error}"))
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _failed(None, mcp.RpcError(mcp.INVALID_REQUEST, "the body must be one JSON-RPC 2.0 object"))
        if "method" not in message:
            return Reply(202)  # an answer to a question that we never ask
        if "id" not in message:
            self._notified(request, message)
            return Reply(202)
        return await self._request(request, message, stream, takes_json, takes_stream)

    async def _request(
        self, request: Request, message: dict[str, Any], stream: Stream, takes_json: bool, takes_stream: bool
    ) -> Reply | None:
        id, method, params = message["id"], message["method"], message.get("params", {})
        if not isinstance(id, str | int) or isinstance(id, bool):
            return _failed(None, mcp.RpcError(mcp.INVALID_REQUEST, "id must be a string or an integer"))
        try:
            if not isinstance(method, str) or not isinstance(params, dict):
                raise mcp.RpcError(mcp.INVALID_REQUEST, "method must be a string and params an object")
            stateless = _is_stateless(request.headers, method, params)
            told = params.get("_meta") if takes_stream else None
            report = reporter(told, lambda message: stream.send(_event(message)))
            session = request.headers.get(mcp.SESSION_HEADER)
            result = await self._call(session, id, method, params, stateless, report)
        except mcp.RpcError as error:
            if stream.started:
                stream.finish(_event(mcp.error(id, error.code, error.message, error.data)))
                return None
            return _failed(id, error)
        body = encode_result(id, result)
        if stream.started:
            stream.finish(mcp.sse_event(body))
            return None
        headers = ((mcp.SESSION_HEADER, secrets.token_hex(16)),) if method == "initialize" else ()
        if not takes_json:
            return Reply(200, mcp.sse_event(body), "text/event-stream", headers)
        return Reply(200, body, headers=headers)

    async def _call(
        self,
        session: str | None,
        id: str | int,
        method: str,
        params: dict[str, Any],
        stateless: bool,
        report: ReportProgress | None,
    ) -> dict[str, Any]:
        call = self._methods.call(method, params, stateless=stateless, report=report)
        if session is None or method != "tools/call":
            return await call
        # A task of its own: a cancellation notice must end the call, not this connection.
        task = self._running[session, id] = asyncio.ensure_future(call)
        try:
            return await task
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise mcp.RpcError(mcp.INTERNAL_ERROR, "the call was cancelled") from None
        finally:
            task.cancel()
            self._running.pop((session, id), None)

    def _notified(self, request: Request, message: Mapping[str, Any]) -> None:
        if message["method"] != "notifications/cancelled" or not isinstance(message.get("params"), dict):
            return
        session = request.headers.get(mcp.SESSION_HEADER)
        id = message["params"].get("requestId")
        if session and isinstance(id, str | int):
            task = self._running.get((session, id))
            if task:
                task.cancel()


def _accepted(accept: str) -> tuple[bool, bool]:
    """Whether the client takes JSON, and whether it takes an event stream."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    anything = not accept or "*/*" in kinds
    return (
        anything or "application/json" in kinds or "application/*" in kinds,
        "text/event-stream" in kinds,
    )


def _is_stateless(headers: Mapping[str, str], method: str, params: Mapping[str, Any]) -> bool:
    """Which era the request is of. RpcError when a stateless request contradicts itself."""
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    header = headers.get(mcp.VERSION_HEADER)
    if mcp.VERSION_META not in meta and (header is None or header in mcp.HANDSHAKE_VERSIONS):
        return False
    missing = [key for key in (mcp.VERSION_META, mcp.CAPABILITIES_META) if key not in meta]
    if missing and header == mcp.STATELESS_VERSION:
        raise mcp.RpcError(mcp.INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version = meta.get(mcp.VERSION_META, header)
    if meta and header != version:
        raise mcp.RpcError(mcp.HEADER_MISMATCH, f"the {mcp.VERSION_HEADER} header does not match params._meta")
    if version != mcp.STATELESS_VERSION:
        raise mcp.unsupported_version(str(version))
    if headers.get(mcp.METHOD_HEADER) != method:
        raise mcp.RpcError(mcp.HEADER_MISMATCH, f"the {mcp.METHOD_HEADER} header does not match the method")
    key = mcp.NAMED_BY.get(method)
    if key and params.get(key) is not None and mcp.decode_header(headers.get(mcp.NAME_HEADER, "")) != params[key]:
        raise mcp.RpcError(mcp.HEADER_MISMATCH, f"the {mcp.NAME_HEADER} header does not match params.{key}")
    return True


def _event(message: dict[str, Any]) -> bytes:
    return mcp.sse_event(mcp.dumps(message))


def _failed(id: str | int | None, error: mcp.RpcError) -> Reply:
    status = _HTTP_STATUS.get(error.code, 200)
    return json_reply(mcp.error(id, error.code, error.message, error.data), status)
