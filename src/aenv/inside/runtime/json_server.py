"""A server elsewhere that takes JSON-RPC by HTTP, as `wrap_agent` asks it.

A redirect is not followed: headers may hold a key, which is for the server that was named.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...base import mcp
from ...base.errors import ToolServerError, ToolTimeoutError

_MAX_ANSWER_BYTES = 16 << 20
_MAX_REASON = 2_000  # characters of what a server says of an error
_CHUNK = 64 << 10


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
    ) -> tuple[dict[str, Any], HTTPMessage]:
        """The result of a method, an object, and the headers of the answer. ToolServerError for all else."""
        id = self.new_id() if id is None else id
        with self._answer(url, mcp.request(id, method, params), headers) as answer:
            for message in self._messages(answer):
                if not isinstance(message, dict) or message.get("id") != id or "method" in message:
                    continue
                # What follows in an event stream is not waited for: the server may keep it open.
                if "error" in message:
                    why = _reason(message["error"])
                    raise ToolServerError(f"{url} answered {method} with an error: {why}")
                if not isinstance(result := message.get("result"), dict):
                    raise ToolServerError(f"{url} answered {method} with a result that is not an object")
                return result, answer.headers
        raise ToolServerError(f"{url} answered {method} with something that is not JSON-RPC")

    def send(self, url: str, message: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None) -> bytes:
        """A POST of `message`, or a GET without one: the body of the answer."""
        with self._answer(url, message, headers) as answer:
            return b"".join(self._pieces(answer))

    @contextmanager
    def _answer(
        self, url: str, message: Mapping[str, Any] | None, headers: Mapping[str, str] | None
    ) -> Iterator[HTTPResponse]:
        content = None if message is None else mcp.dumps(message)
        kind = {"Content-Type": "application/json"} if content else {}
        request = Request(url, content, {**self._headers, **kind, **(headers or {})})
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                yield answer
        except HTTPError as error:
            with error:
                raise ToolServerError(f"{url} answered {error.code}", status_code=error.code) from None
        except TimeoutError:
            raise ToolTimeoutError(f"{url} did not answer within {self.timeout:g} s") from None
        except (URLError, HTTPException, OSError) as error:
            raise ToolServerError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from None

    def _pieces(self, answer: HTTPResponse) -> Iterator[bytes]:
        """The body as it comes. The socket's own timeout is for each piece, and a server may send small ones."""
        until, size = time.monotonic() + self.timeout, 0
        while piece := answer.read1(_CHUNK):
            size += len(piece)
            if size > _MAX_ANSWER_BYTES:
                raise ToolServerError(f"{answer.url} answered with more than {_MAX_ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise TimeoutError
            yield piece

    def _messages(self, answer: HTTPResponse) -> Iterator[Any]:
        """The JSON-RPC messages of an answer: one, or those of an event stream as they come."""
        with suppress(ValueError):  # what is not JSON ends them
            if answer.headers.get_content_type() != "text/event-stream":
                yield mcp.loads(b"".join(self._pieces(answer)))
                return
            events = mcp.SseParser()
            for piece in self._pieces(answer):
                yield from map(mcp.loads, events.feed(piece))
            yield from map(mcp.loads, events.feed(b"\n\n"))


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _reason(error: Any) -> str:
    """What a JSON-RPC error says, in at most _MAX_REASON characters."""
    said = error.get("message", error) if isinstance(error, dict) else error
    text = said if isinstance(said, str) else mcp.dumps(said).decode()
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}…"
