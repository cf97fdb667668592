"""MCP over standard input and output, for desktop clients: one JSON-RPC message a line."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from ...base import mcp
from .calls import reporter
from .mcp_methods import Methods, encode_result

_LAST_ANSWERS = 10.0  # seconds


def take_stdout() -> int:
    """The real standard output, for the protocol alone; from now on what code prints goes to standard error.

    To be called before the author's code is loaded, since that may print too.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    return out


class Stdio:
    """Serves `methods` on standard input and `out` until the input ends."""

    def __init__(self, methods: Methods, out: int) -> None:
        self._methods = methods
        self._running: dict[str | int, asyncio.Task[None]] = {}
        self._out = out

    async def serve(self) -> None:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        put: Callable[[bytes | None], Any] = lambda line: loop.call_soon_threadsafe(lines.put_nowait, line)  # noqa: E731
        threading.Thread(target=_read_lines, args=(put,), name="aenv-stdin", daemon=True).start()
        async with asyncio.TaskGroup() as tasks:
            while (line := await lines.get()) is not None:
                if line.strip():
                    self._received(line, tasks)
            await self._finish()

    async def _finish(self) -> None:
        """Input has ended: what was asked before is still answered, if that does not take long."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=_LAST_ANSWERS)
        for task in self._running.values():
            task.cancel()

    def _received(self, line: bytes, tasks: asyncio.TaskGroup) -> None:
        try:
            message = mcp.loads(line)
        except ValueError as error:
            self._send(mcp.error(None, mcp.PARSE_ERROR, f"not JSON: {error}"))
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._send(mcp.error(None, mcp.INVALID_REQUEST, "each line must be one JSON-RPC 2.0 object"))
        elif "method" in message and isinstance(message.get("id"), str | int):
            self._running[message["id"]] = tasks.create_task(self._answer(message))
        elif message.get("method") == "notifications/cancelled":
            self._cancel(message.get("params"))

    def _cancel(self, params: Any) -> None:
        id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(id, str | int) and id in self._running:
            self._running[id].cancel()

    async def _answer(self, message: dict[str, Any]) -> None:
        id, params = message["id"], message.get("params", {})
        try:
            if not isinstance(message["method"], str) or not isinstance(params, dict):
                raise mcp.RpcError(mcp.INVALID_REQUEST, "method must be a string and params an object")
            meta = params.get("_meta")
            meta = meta if isinstance(meta, dict) else {}
            stateless, report = _is_stateless(meta), reporter(meta, self._send)
            result = await self._methods.call(message["method"], params, stateless=stateless, report=report)
            self._write(encode_result(id, result))
        except mcp.RpcError as error:
            self._send(mcp.error(id, error.code, error.message, error.data))
        finally:
            self._running.pop(id, None)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(mcp.dumps(message))

    def _write(self, message: bytes) -> None:
        data = memoryview(message + b"\n")
        while data:
            data = data[os.write(self._out, data) :]


def _is_stateless(meta: dict[str, Any]) -> bool:
    version = meta.get(mcp.VERSION_META)
    if version is None:
        return False
    if version != mcp.STATELESS_VERSION:
        raise mcp.unsupported_version(str(version))
    return True


def _read_lines(put: Callable[[bytes | None], Any]) -> None:
    for line in sys.stdin.buffer:
        put(line)
    put(None)
