"""A server elsewhere that takes JSON-RPC by HTTP, as `wrap_agent` asks it.

A redirect is not followed: headers may hold a key, which is for the server that was named.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...base import mcp
from ...base.errors import ToolServerError, ToolTimeoutError

_MAX_ANSWER_BYTES = 16 << 20


class JsonServer:
    """A server that takes JSON-RPC by POST. Blocking: each call is made in a thread."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self.url = url
        self._headers = {"Accept": "application/json, text/event-stream", **headers}
        self.timeout = timeout
        self._ids = itertools.count(1)
        self._opener = build_opener(_NoRedirect)

    def new_id(self) -> int:
        """Of a request that may have to be named again, to cancel it."""
        return next(self._ids)

    def rpc(
        self,
        url: str,
        method: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        id: int | None = None,
    ) -> tuple[Any, HTTPMessage]:
        """The result of a method, and the headers of the answer. ToolServerError carries the server's error."""
        id = self.new_id() if id is None else id
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
            with self._opener.open(request, timeout=self.timeout) as answer:
                body = answer.read(_MAX_ANSWER_BYTES + 1)
                head: HTTPMessage = answer.headers
        except HTTPError as error:
            with error:
                raise ToolServerError(f"{url} answered {error.code}", status_code=error.code) from None
        except TimeoutError:
            raise ToolTimeoutError(f"{url} did not answer within {self.timeout:g} s") from None
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


def json_object(result: Any) -> dict[str, Any]:
    """The result, which must be an object. ToolServerError when it is not."""
    if not isinstance(result, dict):
        raise ToolServerError("the agent answered with something that is neither a message nor a task")
    return result
