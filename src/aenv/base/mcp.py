"""The slice of MCP that runtime and client share: both protocol eras, as plain dicts and bytes.

Handshake era (up to 2025-11-25): `initialize`, a session id, then calls. Stateless era (2026-07-28):
every POST stands alone and carries its protocol version in `params._meta`. Not here: transport
(`http1.py`, `runtime/`), and what a method does (`inside/runtime/mcp_methods.py`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
SESSION_HEADER = "mcp-session-id"

VERSION_META = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_META = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_META = "io.modelcontextprotocol/serverInfo"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

# The parameter whose value the Mcp-Name header repeats, by method.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class RpcError(Exception):
    """A JSON-RPC error: raised by a method on the server, and from a reply on the client."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def unsupported_version(version: str) -> RpcError:
    """What a stateless client of another version is told; it may try again with one of ours."""
    data = {"supported": [STATELESS_VERSION], "requested": version}
    return RpcError(UNSUPPORTED_VERSION, f"unsupported protocol version {version!r}", data)


def progress(token: str | int, progress: float, total: float | None, message: str | None) -> dict[str, Any]:
    """The parameters of a progress notification."""
    optional = {"total": total, "message": message}
    given = {key: value for key, value in optional.items() if value is not None}
    return {"progressToken": token, "progress": progress, **given}


def loads(body: bytes | str) -> Any:
    """Parse JSON. ValueError on malformed text, bad UTF-8 and absurd nesting."""
    return from_json(body, allow_inf_nan=False)


def dumps(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")


def request(id: int | str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(id: int | str | None, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def error(id: int | str | None, code: int, message: str, data: Any = None) -> dict[str, Any]:
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": body}


def sse_event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


class SseParser:
    """Splits an event stream into the data of its events, whatever the line ends."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        data = self._buffer + chunk
        held = b"\r" if data.endswith(b"\r") else b""  # its line feed may be the next chunk's first byte
        *blocks, rest = data.removesuffix(held).replace(b"\r\n", b"\n").split(b"\n\n")
        self._buffer = rest + held
        events = (
            b"\n".join(line[5:].lstrip(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
            for block in blocks
        )
        return [event for event in events if event]


def stateless_meta(client: Mapping[str, str]) -> dict[str, Any]:
    """What a stateless client says about itself in every request: its name and its version."""
    return {VERSION_META: STATELESS_VERSION, CLIENT_INFO_META: client, CAPABILITIES_META: {}}


def stateless_headers(method: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The headers that must repeat what a stateless request's body says."""
    headers = [(VERSION_HEADER, STATELESS_VERSION), (METHOD_HEADER, method)]
    if method in NAMED_BY:
        headers.append((NAME_HEADER, encode_header(str(params[NAMED_BY[method]]))))
    return headers


def encode_header(value: str) -> str:
    """`value` as a header can hold it: printable ASCII as it is, anything else in base64."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_header(value: str) -> str | None:
    """The inverse of `encode_header`; None when the base64 or its UTF-8 is broken."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
