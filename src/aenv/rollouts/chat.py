"""Chat completions of any OpenAI-compatible server: one request, repeated where that is safe."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base import mcp
from ..base.addresses import parse_url
from ..base.errors import AEnvError, NetworkError
from ..base.http1 import Pool, Response
from ..client.api import fetch

_TRIES = 6
_MAX_WAIT = 60.0
_TIMEOUT = 600.0
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)


class ModelFailed(AEnvError):
    """The model's server did not give an answer that can be used."""

    status = 502
    code = "model_failed"


@dataclass(frozen=True)
class Reply:
    """What the model said, and what that took."""

    message: dict[str, Any]
    tokens_in: int
    tokens_out: int


class Chat:
    """A model behind `base_url`, as in "http://localhost:8000/v1"."""

    def __init__(self, base_url: str, key: str | None) -> None:
        self._origin, path = parse_url(base_url)
        self._target = f"{path.rstrip('/')}/chat/completions"
        self._key = key
        self._pool = Pool()

    async def close(self) -> None:
        await self._pool.close()

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """The answer to one request. What passes (a rate limit, a broken connection) is tried again."""
        payload = mcp.dumps(dict(body))
        for attempt in range(_TRIES):
            try:
                response, content = await self._ask(payload)
            except NetworkError as error:
                failure: AEnvError = error
                wait = None
            else:
                if response.status == 200:
                    return _reply(content)
                said = self._without_key(content[:300].decode("utf-8", "replace"))
                failure = ModelFailed(f"{self._origin} answered {response.status}: {said}")
                if response.status not in _PASSING:
                    raise failure
                wait = _asked_wait(response)
            if attempt + 1 < _TRIES:
                await asyncio.sleep(
                    min(_MAX_WAIT, 0.2 * 2.0**attempt * random.uniform(0.5, 1.0) if wait is None else wait)
                )
        raise ModelFailed(f"the model did not answer in {_TRIES} attempts; the last: {failure.message}")

    async def _ask(self, payload: bytes) -> tuple[Response, bytes]:
        headers = [("content-type", "application/json"), ("accept", "application/json")]
        if self._key:
            headers.append(("authorization", f"Bearer {self._key}"))
        return await fetch(self._pool, self._origin, "POST", self._target, headers, payload, _TIMEOUT)

    def _without_key(self, text: str) -> str:
        """Some servers repeat the key that they refuse."""
        return text.replace(self._key, "…") if self._key else text


def _asked_wait(response: Response) -> float | None:
    text = response.header(b"retry-after") or ""
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def _reply(content: bytes) -> Reply:
    try:
        answer = mcp.loads(content)
        message = answer["choices"][0]["message"]
        usage = answer.get("usage") or {}
        read, written = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelFailed(f"the model's answer is no chat completion: {content[:200]!r}") from error
    if not isinstance(message, dict):
        raise ModelFailed(f"the model's answer has no message: {content[:200]!r}")
    return Reply(message, read, written)
