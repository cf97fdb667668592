"""Language models behind any URL that speaks OpenAI's chat completions.

What an agent may read of a failure leaves out the server's words, which may repeat the user's scenario.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aenv import AEnvError, Chat, ModelFailed, ToolError

Json = dict[str, Any]
Ask = Callable[[list[Json], list[Json]], Json]
"""From messages and tools to the model's message: {"content", "tool_calls"}."""

_DEFAULT_BASE = "https://api.openai.com/v1"
_TIMEOUT = 120.0


@dataclass(frozen=True)
class Model:
    """A model by its name and where it is served."""

    name: str
    base: str = _DEFAULT_BASE
    key: str = field(default="", repr=False)

    def __call__(self, messages: list[Json], tools: list[Json]) -> Json:
        """Temperature 0 and a fixed seed, as the benchmark's runner has them."""
        body: Json = {"model": self.name, "messages": messages, "temperature": 0, "seed": 300}
        if tools:
            body["tools"] = tools
        try:
            return asyncio.run(self._asked(body))
        except ModelFailed as error:
            hint = "; its URL must be right, and the network policy of this instance must allow it"
            raise ModelFailed(
                f"model {self.name!r} failed: {error.reason}{hint if error.status_code is None else ''}"
            ) from None

    async def _asked(self, body: Json) -> Json:
        async with Chat(self.base, self.key, timeout=_TIMEOUT) as chat:
            return (await chat.complete(body)).message


def model_of(variables: Mapping[str, str], prefix: str) -> Model | None:
    """The model that `<prefix>`, `<prefix>_API_BASE` and `<prefix>_API_KEY` name; None without the first.

    ToolError names the variables and not their values, which may hold a secret.
    """
    name = variables.get(prefix)
    if not name:
        return None
    own = [variables.get(f"{prefix}_{one}", "").strip() for one in ("API_BASE", "API_KEY")]
    # Else the model that the instance was given; a key goes only where its base does.
    given = [variables.get(one, "").strip() for one in ("OPENAI_BASE_URL", "OPENAI_API_KEY")]
    base, key = own if any(own) else given
    base = base or _DEFAULT_BASE
    try:
        Chat(base, key)
    except AEnvError as error:
        raise ToolError(f"{prefix}_API_BASE or {prefix}_API_KEY cannot be used: {error.message}") from None
    return Model(name, base, key)
