"""`Capture`: the endpoint itself, which forwards requests of agents to the model's server, and records both.

A request says by its API key of which rollout it is. That token goes no further: the server gets its own key, in
the same header. Not here: how the APIs differ (`dialects.py`), and what is written (`exchange_log.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import NetworkError, TooLarge
from ...base.http1 import Response
from ...client.model_server import ModelServer
from .. import bounded_json, loopback_server
from ..loopback_server import Receive, Scope, Send
from . import event_streams
from .covered import CoveredStream, covered
from .dialects import DIALECTS, ChatCompletions, Dialect
from .exchange_log import ExchangeLog
from .model_exchange import ModelExchange

logger = logging.getLogger("aenv.rollouts.capture")

MAX_REQUEST_BYTES = 32 << 20
MAX_REPLY_BYTES = 64 << 20
TIMEOUT = 600.0
TOKEN_PREFIX = "sk-aenv-"

_CHAT = ChatCompletions()
_SENT_ON = ("content-type", "accept", "user-agent", "idempotency-key")
_OWN_HEADERS = ("anthrop", "openai-")
_KEY_HOLDERS = ("openai-organization", "openai-project")  # who pays is for the owner of the key to say
_SENT_BACK = (
    *("content-type", "content-encoding", "retry-after", "retry-after-ms"),
    *("x-request-id", "request-id", "x-should-retry"),
)
# The path comes decoded, and goes on as it is: nothing that could lead elsewhere, or end the line.
_MODELS = re.compile(r"models(/[A-Za-z0-9][A-Za-z0-9._:@-]*)*")
_SHORTEST_SECRET = 8  # a shorter one is a word that others may say, such as "EMPTY"


@dataclass(frozen=True)
class ModelAccess:
    """What an agent needs to ask its model through the capture."""

    url: str
    """With `/v1`, as OpenAI's clients want it; those of Anthropic want it without."""
    key: str = field(repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """The same for agents that are programs."""
        return {
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": self.key,
        }


@dataclass(eq=False)
class Admitted:
    """A rollout that may ask."""

    log: ExchangeLog
    token: str = field(repr=False)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class _NotServed(Exception):
    """A request that is answered by the capture itself."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Capture:
    """An endpoint in front of the model at `upstream`; an `async with` for its life. `url` is where agents ask.

    `key` is for the model's server. `parameters` are added to chat completions that do not set them, as in
    `{"logprobs": True}`: so agents that know nothing of training give what it needs. `timeout`, in seconds, is for
    the time in which nothing comes.
    """

    def __init__(
        self,
        upstream: str,
        key: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        parameters: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self._server = ModelServer(upstream, key)
        self._secrets = [key] if key and len(key) >= _SHORTEST_SECRET else []
        self._where = host, port
        self._parameters = dict(parameters or {})
        self._timeout = timeout
        self._admitted: dict[bytes, Admitted] = {}
        self.url = ""

    async def __aenter__(self) -> Capture:
        self._listening = loopback_server.listening(self, *self._where)
        port = await self._listening.__aenter__()
        host = self._where[0]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        return self

    async def __aexit__(self, *exc: object) -> None:
        for one in list(self._admitted.values()):
            await self.dismiss(one.token)
        await self._listening.__aexit__(None, None, None)
        await self._server.close()

    def admit(self, log: ExchangeLog, *, token: str = "") -> ModelAccess:
        """Let a rollout ask, until it is dismissed. A `token` is made unless there is one."""
        token = token or f"{TOKEN_PREFIX}{secrets.token_urlsafe(24)}"
        self._admitted[_digest(token)] = Admitted(log, token)
        return self.access(token)

    def access(self, token: str) -> ModelAccess:
        """How one asks with this token."""
        return ModelAccess(self.url, token)

    async def dismiss(self, token: str) -> None:
        """Let a rollout ask no more; what it has asked is given up, on record."""
        one = self._admitted.pop(_digest(token), None)
        tasks = list(one.tasks) if one else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def found(self, token: str) -> Admitted | None:
        """The rollout whose token it is, while it is under way."""
        return self._admitted.get(_digest(token))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        path = str(scope["path"]).removeprefix("/v1").strip("/")
        dialect = DIALECTS.get("messages" if path.startswith("messages") else path, _CHAT)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        answer = _Answer(send, dialect, self._secrets)
        try:
            admitted, key_header = self._who(headers)
            body = await loopback_server.body(receive, MAX_REQUEST_BYTES) if scope["method"] == "POST" else b""
            _check_route(scope["method"], path)
            sent = [(name, value) for name, value in headers.items() if _is_sent_on(name)]
            query = scope["query_string"].decode("latin-1")
            asked = _Asked(
                scope["method"],
                f"/{path}{f'?{query}' if query else ''}",
                # What is compressed could neither be recorded nor searched for the key.
                [*sent, ("accept-encoding", "identity"), *self._server.authorization(key_header)],
                body,
            )
            if path in DIALECTS:
                work = self._recorded(admitted, dialect, self._completed(asked, dialect), answer)
            else:
                work = self._forward(asked, answer, _Outcome())
            await self._while_there(admitted, work, receive)
        except TooLarge as error:
            await answer.fail(_NotServed(413, "request_too_large", error.message))
        except _NotServed as refused:
            await answer.fail(refused)

    def _who(self, headers: Mapping[str, str]) -> tuple[Admitted, str]:
        """Whose request it is, and the header that says so."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        for header, token in (("x-api-key", headers.get("x-api-key")), ("authorization", bearer.strip())):
            is_key = header == "x-api-key" or kind.lower() == "bearer"
            if token and is_key and (found := self.found(token)):
                return found, header
        raise _NotServed(401, "invalid_api_key", "the API key is not the token of a rollout that is under way")

    def _completed(self, asked: _Asked, dialect: Dialect) -> _Asked:
        """The request with the parameters of the capture. It must be an object of JSON."""
        try:
            request = bounded_json.loads(asked.body)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            deepest = f"of at most {bounded_json.MAX_DEPTH} levels"
            raise _NotServed(400, "invalid_json", f"the body must be an object of JSON, {deepest}")
        if dialect.name == "chat/completions" and self._parameters:
            request = {**self._parameters, **request}
            return replace(asked, body=json.dumps(request).encode(), request=request)
        return replace(asked, request=request)

    async def _while_there(self, admitted: Admitted, work: Awaitable[None], receive: Receive) -> None:
        """Do the work as long as the agent waits for it and its rollout is under way."""
        task = asyncio.ensure_future(work)
        admitted.tasks.add(task)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            task.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)
            admitted.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            raise error

    async def _recorded(self, admitted: Admitted, dialect: Dialect, asked: _Asked, answer: _Answer) -> None:
        """Forward a request, and write down what came of it, however that ended."""
        outcome, began, at = _Outcome(), time.perf_counter(), time.time()
        is_given_up = False
        try:
            await self._forward(asked, answer, outcome)
        except asyncio.CancelledError:
            outcome.error, is_given_up = "the agent did not wait for the reply", True
            raise
        finally:
            reply, why = _reply(dialect, outcome)
            refused = f"the model's server answered {outcome.status}" if outcome.status not in (None, 200) else ""
            exchange = ModelExchange(
                admitted.log.count + 1,
                dialect.name,
                asked.request,
                reply,
                outcome.status,
                outcome.error or refused or why,
                at,
                time.perf_counter() - began,
                outcome.first and outcome.first - began,
            )
            admitted.log.add(exchange, [*self._secrets, admitted.token], is_given_up=is_given_up)

    async def _forward(self, asked: _Asked, answer: _Answer, outcome: _Outcome) -> None:
        """The answer of the model's server to the agent, as it comes. What goes wrong is an answer, too."""
        where = self._server.origin
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                response = await self._server.request(asked.method, asked.target, asked.headers, asked.body)
                outcome.status = response.status
                if 300 <= response.status < 400:
                    response.close()
                    raise _NotServed(
                        502, "upstream_redirects", f"{where} answers {response.status}; name its new URL"
                    )
                outcome.encoding = response.header(b"content-encoding") or "identity"
                outcome.is_stream = (response.header(b"content-type") or "").startswith("text/event-stream")
                if outcome.is_stream:
                    await self._stream(response, answer, outcome, deadline)
                else:
                    outcome.body = covered(await response.read(MAX_REPLY_BYTES), self._secrets)
                    await answer.whole(response, outcome.body)
        except TimeoutError:
            refused = _NotServed(504, "upstream_timeout", f"{where}: nothing came for {self._timeout:g} s")
        except (NetworkError, TooLarge) as error:
            refused = _NotServed(502, "upstream_failed", f"{where}: {error.message}")
        except _NotServed as error:
            refused = error
        else:
            return
        outcome.error = refused.message
        await answer.fail(refused)

    async def _stream(
        self, response: Response, answer: _Answer, outcome: _Outcome, deadline: asyncio.Timeout
    ) -> None:
        await answer.begin(response)
        parts: list[bytes] = []
        size, safe = 0, CoveredStream(self._secrets)
        try:
            async for piece in response:
                outcome.first = outcome.first or time.perf_counter()
                size += len(piece)
                if size <= MAX_REPLY_BYTES:
                    parts.append(piece)
                if shown := safe.piece(piece):
                    await answer.piece(shown)
                deadline.reschedule(asyncio.get_running_loop().time() + self._timeout)
        finally:
            outcome.body = b"".join(parts)
            if size > MAX_REPLY_BYTES:
                outcome.error = f"the reply has {size} bytes, and only {MAX_REPLY_BYTES} are kept"
        await answer.end(safe.rest())


@dataclass(frozen=True)
class _Asked:
    """A request as it goes to the model's server."""

    method: str
    target: str
    headers: list[tuple[str, str]] = field(repr=False)
    body: bytes = field(repr=False)
    request: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class _Outcome:
    """What came of a request, as far as it came."""

    status: int | None = None
    body: bytes = b""
    encoding: str = "identity"
    is_stream: bool = False
    first: float | None = None
    error: str = ""


class _Answer:
    """What the agent gets: an answer of the model's server, or an error in the words of the API.

    Some servers repeat the key that they refuse, in a header too; `secrets` are covered there.
    """

    def __init__(self, send: Send, dialect: Dialect, secrets: Sequence[str]) -> None:
        self._send = send
        self._dialect = dialect
        self._secrets = secrets
        self._has_begun = False

    async def whole(self, response: Response, body: bytes) -> None:
        await self._head(response.status, [*_kept(response), ("content-length", str(len(body)))])
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, response: Response) -> None:
        await self._head(response.status, _kept(response))

    async def piece(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, rest: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": rest})

    async def fail(self, refused: _NotServed) -> None:
        body = json.dumps(self._dialect.error(refused.status, refused.code, refused.message)).encode()
        if self._has_begun:  # of a stream; each API has an event for it
            await self.piece(b"event: error\ndata: " + body + b"\n\n")
            await self.end()
            return
        length = [("content-length", str(len(body))), ("content-type", "application/json")]
        await self._head(refused.status, length)
        await self._send({"type": "http.response.body", "body": body})

    async def _head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self._has_begun = True
        raw = [(name.encode(), covered(value.encode("latin-1"), self._secrets)) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


def _kept(response: Response) -> list[tuple[str, str]]:
    """The headers that an agent may see: of limits and requests, and none that set or lead anywhere."""
    named = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
    return [(name, value) for name, value in named if name in _SENT_BACK or "ratelimit" in name]


def _reply(dialect: Dialect, outcome: _Outcome) -> tuple[dict[str, Any], str]:
    """The reply as an object, and why it is not a whole one."""
    if outcome.encoding != "identity":
        return {}, f"the reply is encoded as {outcome.encoding[:40]!r}, which was not asked for, and is not kept"
    if outcome.is_stream:
        return event_streams.assembled(dialect.name, outcome.body)
    try:
        found = bounded_json.loads(outcome.body) if outcome.body else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return {"text": outcome.body[:2000].decode("utf-8", "replace")}, "the reply is not an object of JSON"
    return found, "" if found else "the reply is empty"


def _check_route(method: str, path: str) -> None:
    """Only what reads models, and what asks them: the key that goes on may be good for more."""
    takes = "POST" if path in DIALECTS or path == "messages/count_tokens" else "GET"
    if takes == "GET" and not _MODELS.fullmatch(path):
        raise _NotServed(404, "not_found", f"'/v1/{path}' is not captured; ask {', '.join(DIALECTS)} or models")
    if method != takes:
        raise _NotServed(405, "method_not_allowed", f"'/v1/{path}' takes {takes}")


def _is_sent_on(header: str) -> bool:
    return header in _SENT_ON or (header[:7] in _OWN_HEADERS and header not in _KEY_HOLDERS)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _digest(token: str) -> bytes:
    """What tokens are found by, so that the time of looking says nothing about them."""
    return hashlib.sha256(token.encode()).digest()
