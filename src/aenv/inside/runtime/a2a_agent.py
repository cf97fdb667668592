"""An agent that speaks A2A, version 0.3 or 1.0, by JSON-RPC. Its card says which of them, and where."""

from __future__ import annotations

import inspect
import threading
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from ...base import mcp
from ...base.errors import ToolServerError, ToolTimeoutError
from ..author.conversations import ChatSession
from .json_server import JsonServer

_CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_JSON_RPC = "JSONRPC"
_WAITING = ("submitted", "working")
_LOOK_AGAIN = 0.5  # seconds between looks at a task that goes on
_GOOD_ENDS = ("", "completed", "input-required")  # a message has no state


@dataclass(frozen=True)
class A2aVersion:
    """How one version of the protocol writes what is asked."""

    send: str
    look: str
    cancel: str
    message: Mapping[str, Any]
    """What each message of a user has."""
    part: Mapping[str, Any]
    """What each part that is a text has."""
    headers: Mapping[str, str]


_V03 = A2aVersion(
    "message/send", "tasks/get", "tasks/cancel", {"kind": "message", "role": "user"}, {"kind": "text"}, {}
)
_V1 = A2aVersion("SendMessage", "GetTask", "CancelTask", {"role": "ROLE_USER"}, {}, {"A2A-Version": "1.0"})


@dataclass(frozen=True)
class A2aEndpoint:
    """Where an agent is asked, and in which version."""

    url: str
    version: A2aVersion


class A2aAgent:
    """The agent; each session is a context there."""

    description: str | None = None
    parameters: Mapping[str, inspect.Parameter] = {}
    hints: Mapping[str, Any] = {}

    def __init__(self, server: JsonServer) -> None:
        self._server = server
        self._endpoint: A2aEndpoint | None = None

    async def reply(self, message: str, conversation: ChatSession, given: Mapping[str, Any]) -> AsyncIterator[Any]:
        gone = threading.Event()
        try:
            yield await conversation.in_thread(partial(self._ask, message, conversation, gone))
        finally:
            gone.set()

    def _ask(self, text: str, conversation: ChatSession, gone: threading.Event) -> str:
        self._endpoint = self._endpoint or self._find()
        version = self._endpoint.version
        message = {**version.message, "parts": [{**version.part, "text": text}], "messageId": uuid.uuid4().hex}
        result = self._rpc(version.send, {"message": {**message, **(conversation.state or {})}})
        # 1.0 says which of them it is.
        told = result.get("task") or result.get("message") or result
        if not isinstance(told, dict):
            raise ToolServerError(
                f"{self._server.url} answered with something that is neither a message nor a task"
            )
        result = self._ended(told, gone)
        state = _state(result)
        if state not in _GOOD_ENDS:
            raise ToolServerError(f"{self._server.url}: the task ended as {state}: {_said(result)}")
        known = {"contextId": result.get("contextId")}
        if state == "input-required":  # the next message goes on with it
            known["taskId"] = result.get("id")
        conversation.state = {name: value for name, value in known.items() if value}
        return _said(result)

    def _ended(self, result: dict[str, Any], gone: threading.Event) -> dict[str, Any]:
        """A message as it is; a task when it has ended, or asks for input. Without its caller it is cancelled."""
        assert self._endpoint
        version, until = self._endpoint.version, time.monotonic() + self._server.timeout
        while (state := _state(result)) in _WAITING:
            # A task does not say when it is done, unless one listens to a stream.
            if gone.wait(_LOOK_AGAIN) or time.monotonic() > until:
                with suppress(ToolServerError):  # not every agent can
                    self._rpc(version.cancel, {"id": result.get("id")})
                raise ToolTimeoutError(
                    f"{self._server.url}: its task was still {state} after {self._server.timeout:g} s"
                )
            result = self._rpc(version.look, {"id": result.get("id")})
        return result

    def _rpc(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert self._endpoint
        endpoint = self._endpoint
        return self._server.rpc(endpoint.url, method, params, endpoint.version.headers)[0]

    def _find(self) -> A2aEndpoint:
        """Where its card says that it is asked: on the server that was named, and no other."""
        url = self._server.url
        for path in _CARDS:
            try:
                offers = _offers(mcp.loads(self._server.send(urljoin(url, path), None)))
            except (ToolServerError, ValueError, AttributeError, KeyError, TypeError):  # no card
                continue
            if not offers:
                raise ToolServerError(f"{url}: its card offers no JSON-RPC of A2A 0.3 or 1.0")
            places = [A2aEndpoint(urljoin(url, said or url), version) for said, version in offers]
            mine = [one for one in places if urlsplit(one.url)[:2] == urlsplit(url)[:2]]
            return mine[0] if mine else A2aEndpoint(url, offers[0][1])
        return A2aEndpoint(url, _V03)


def _offers(card: Mapping[str, Any]) -> list[tuple[str, A2aVersion]]:
    """URLs and versions of what a card offers and is known here, the newest first."""
    if "supportedInterfaces" in card:
        spoken = [one for one in card["supportedInterfaces"] if one["protocolBinding"] == _JSON_RPC]
        versions = (("1.", _V1), ("0.3", _V03))
        return [
            (str(one["url"]), version)
            for prefix, version in versions
            for one in spoken
            if str(one.get("protocolVersion", "1.0")).startswith(prefix)
        ]
    listed = [{"url": card.get("url", ""), "transport": card.get("preferredTransport", _JSON_RPC)}]
    listed += card.get("additionalInterfaces") or []
    return [(str(one["url"]), _V03) for one in listed if one["transport"] == _JSON_RPC]


def _state(result: Mapping[str, Any]) -> str:
    """Of a task, as in "input-required"; empty for a message."""
    status = result.get("status")
    state = str(status.get("state", "")) if isinstance(status, dict) else ""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def _said(result: Mapping[str, Any]) -> str:
    """The text of a message, or of a task: its artifacts, else what its status says."""
    artifacts = [part for one in _list(result, "artifacts") for part in _list(one, "parts")]
    status = result.get("status")
    told = _list(status.get("message"), "parts") if isinstance(status, dict) else []
    return "\n".join(_text(part) for part in _list(result, "parts") or artifacts or told)


def _list(value: Any, name: str) -> list[Any]:
    """The list in this field; empty where another server's words have none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else mcp.dumps(part).decode()
