"""Language models behind any URL that speaks OpenAI's chat completions.

The key goes into the request's header and nowhere else: no error and no repr holds it.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from aenv import ToolError

Json = dict[str, Any]
Chat = Callable[[list[Json], list[Json]], Json]
"""From messages and tools to the model's message: {"content", "tool_calls"}."""

_DEFAULT_BASE = "https://api.openai.com/v1"
_TIMEOUT = 120.0
_PAUSES = (1.0, 4.0)  # seconds before the second and the third attempt
_WORTH_ANOTHER = {408, 409, 429, 500, 502, 503, 504}


class ModelFailed(Exception):
    """A model did not give a usable answer; the message says why, without anything secret."""


@dataclass(frozen=True)
class Model:
    """A model by its name and where it is served."""

    name: str
    base: str = _DEFAULT_BASE
    key: str = field(default="", repr=False)
    pauses: tuple[float, ...] = _PAUSES

    def __call__(self, messages: list[Json], tools: list[Json]) -> Json:
        """Temperature 0 and a fixed seed, as the benchmark's runner has them."""
        body: Json = {"model": self.name, "messages": messages, "temperature": 0, "seed": 300}
        if tools:
            body["tools"] = tools
        answer = self._asked(json.dumps(body).encode())
        try:
            message: Json = answer["choices"][0]["message"]
        except (KeyError, IndexError, TypeError):
            raise ModelFailed(f"model {self.name!r} gave no message") from None
        return message

    def _asked(self, body: bytes) -> Any:
        for pause in (*self.pauses, None):
            try:
                return self._ask(body)
            except urllib.error.HTTPError as error:
                with error:
                    reason = f"HTTP {error.code} {error.reason}"
                if error.code not in _WORTH_ANOTHER:
                    raise ModelFailed(f"model {self.name!r} refused the request: {reason}") from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if pause is None:
                break
            time.sleep(pause)  # a server that is busy or restarts asks for time, and tells nobody when it is back
        raise ModelFailed(
            f"model {self.name!r} cannot be reached: {reason}; its URL must be right, and the network policy of "
            "this instance must allow it"
        )

    def _ask(self, body: bytes) -> Any:
        headers = {"content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(f"{self.base.rstrip('/')}/chat/completions", body, headers)
        with urllib.request.build_opener(_Stay).open(request, timeout=_TIMEOUT) as response:
            return json.load(response)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the key would go along, to whatever server it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


def model_of(variables: Mapping[str, str], prefix: str) -> Model | None:
    """The model that `<prefix>`, `<prefix>_API_BASE` and `<prefix>_API_KEY` name; None without the first.

    ToolError names the variable that is wrong and not its value, which may hold a secret.
    """
    name = variables.get(prefix)
    if not name:
        return None
    base = variables.get(f"{prefix}_API_BASE", "").strip() or _DEFAULT_BASE
    if not _is_base(base):
        raise ToolError(
            f"{prefix}_API_BASE is no URL of a model server; it is like 'http://localhost:8000/v1', and a key "
            f"goes into {prefix}_API_KEY"
        )
    key = variables.get(f"{prefix}_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ToolError(f"{prefix}_API_KEY is no key: it has a line break, or characters other than ASCII's")
    return Model(name, base, key)


def _is_base(url: str) -> bool:
    if not (url.isascii() and url.isprintable()) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is no number
    except ValueError:
        return False
    is_bare = "@" not in parts.netloc and not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_bare
