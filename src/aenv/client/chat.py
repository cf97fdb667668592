"""Chat completions of any OpenAI-compatible server: one request, repeated where that is safe.

The agent `llm`, environments that ask a model, and examples share it. The key goes into a header of the request
and nowhere else: no error and no `repr` holds it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base import mcp
from ..base.errors import AEnvError, NetworkError, TooLarge
from ..base.http1 import Response
from .model_server import ModelServer

_MAX_WAIT = 60.0
_MAX_ANSWER_BYTES = 16 << 20
_SHOWN = 300  # characters of an answer that cannot be used
_PASSING = {408, 409, 425, 429}


class ModelFailed(AEnvError):
    """A model did not give an answer that can be used.

    `reason` says why; the message adds the server's own words, which may repeat parts of the request.
    `status_code` is the HTTP status of the answer, None where none came.
    """

    status = 502
    code = "model_failed"

    def __init__(self, reason: str, *, status_code: int | None = None, said: str = "") -> None:
        super().__init__(f"{reason}: {said}" if said else reason)
        self.reason = reason
        self.status_code = status_code
        self.said = said

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status_code is None or self.status_code >= 500 or self.status_code in _PASSING


@dataclass(frozen=True)
class ChatReply:
    """What the model said, and what that took."""

    message: dict[str, Any]
    tokens_in: int
    tokens_out: int
    token_ids: list[int] = field(default_factory=list)
    """What was sampled; this and what follows only where the server tells it."""
    logprobs: list[float] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)


class Chat:
    """A model behind `base_url`, as in "http://localhost:8000/v1"; an `async with` that closes its connections.

    `timeout`, in seconds, is for one attempt. No redirect is followed: the key is for the server that was named.
    InvalidRequest where the URL or the key cannot be used; it shows neither.
    """

    def __init__(
        self, base_url: str, key: str | None = None, *, timeout: float = 600.0, attempts: int = 6
    ) -> None:
        self._server = ModelServer(base_url, key)
        self._timeout = timeout
        self._attempts = attempts
        self._headers = [
            ("content-type", "application/json"),
            ("accept", "application/json"),
            *self._server.authorization(),
        ]

    async def __aenter__(self) -> Chat:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._server.close()

    async def complete(self, body: Mapping[str, Any]) -> ChatReply:
        """The answer to one request. What passes (a rate limit, a broken connection) is tried again."""
        payload = mcp.dumps(dict(body))
        for attempt in range(self._attempts):
            wait = None
            try:
                response, content = await self._ask(payload)
                if response.status == 200:
                    return self._reply(content)
                failure = self._failed(f"the model's server answered {response.status}", response.status, content)
                wait = _asked_wait(response)
            except NetworkError as error:
                failure = ModelFailed(error.message)
            if not failure.is_passing or self._attempts == 1:
                raise failure
            if attempt + 1 < self._attempts:
                pause = 0.2 * 2.0**attempt * random.uniform(0.5, 1.0) if wait is None else wait
                await asyncio.sleep(min(_MAX_WAIT, pause))
        raise ModelFailed(
            f"the model did not answer in {self._attempts} attempts; the last: {failure.reason}",
            status_code=failure.status_code,
            said=failure.said,
        )

    async def _ask(self, payload: bytes) -> tuple[Response, bytes]:
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._server.request("POST", "/chat/completions", self._headers, payload)
                return response, await response.read(_MAX_ANSWER_BYTES)
        except TimeoutError:
            raise NetworkError(f"{self._server.origin} did not answer within {self._timeout:g} s") from None
        except TooLarge as error:
            raise ModelFailed(f"{self._server.origin}: {error.message}", status_code=200) from None

    def _reply(self, content: bytes) -> ChatReply:
        try:
            answer = mcp.loads(content)
            choice = answer["choices"][0]
            message = choice["message"]
            usage = answer.get("usage") or {}
            read, written = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._failed("the model's answer is not a chat completion", 200, content) from None
        if not isinstance(message, dict):
            raise self._failed("the model's answer has no message", 200, content)
        tokens = (choice.get("logprobs") or {}).get("content") or []
        return ChatReply(
            message,
            read,
            written,
            # The two lists of ids are extensions of vLLM and of servers that follow it.
            choice.get("token_ids") or [],
            [token["logprob"] for token in tokens],
            answer.get("prompt_token_ids") or [],
        )

    def _failed(self, reason: str, status: int, content: bytes) -> ModelFailed:
        said = self._server.without_key(content.decode("utf-8", "replace"))
        return ModelFailed(reason, status_code=status, said=said[:_SHOWN])


def _asked_wait(response: Response) -> float | None:
    text = response.header(b"retry-after") or ""
    return float(text) if text.replace(".", "", 1).isdecimal() else None
