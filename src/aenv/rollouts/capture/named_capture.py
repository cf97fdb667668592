"""A capture by itself, for agents that no runner starts: the key of each request names its rollout."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...base.errors import InvalidRequest
from .. import journal, locations
from ..journal import Journal
from ..results import RunIdentity
from ..trajectory import Trajectory, TrajectoryHead
from .endpoint import TOKEN_PREFIX, Admitted, Capture
from .exchange_log import ExchangeLog

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_UNNAMED = "capture"


class NamedCapture(Capture):
    """Takes one key for all, and for each `-NAME` after it a rollout of its own, which begins when it asks."""

    def __init__(self, file: Journal, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._file = file
        self.key = f"{TOKEN_PREFIX}{secrets.token_hex(16)}"
        self._secrets.append(self.key)  # the token of a named rollout is longer

    def found(self, token: str) -> Admitted | None:
        known = super().found(token)
        begin, name = token[: len(self.key)], token[len(self.key) :]
        if known or not secrets.compare_digest(begin.encode(), self.key.encode()):
            return known
        if name == f"-{_UNNAMED}":
            return self.found(self.key)  # the same rollout
        if name and not (name[0] == "-" and _NAME.fullmatch(name[1:])):
            return None
        head = TrajectoryHead(name[1:] or _UNNAMED, name[1:] or _UNNAMED, at=round(time.time(), 3))
        self._file.append(head.as_json())
        self.admit(ExchangeLog(self._file, Trajectory(head), keeps=False), token=token)
        return super().found(token)


def run(
    upstream: str,
    key: str | None,
    out: Path,
    where: tuple[str, int],
    parameters: dict[str, Any],
    tell: Callable[[dict[str, str]], None],
) -> None:
    """Capture until the process is interrupted; `tell` is given the variables of an agent."""

    async def main() -> None:
        with journal.opened(out, RunIdentity("", agent="capture")) as file:
            made = NamedCapture(file, upstream, key, host=where[0], port=where[1], parameters=parameters)
            async with made:
                tell(made.access(made.key).variables)
                await asyncio.get_running_loop().create_future()

    locations.run(main)


def parsed(parameters: Iterable[str]) -> dict[str, Any]:
    """From `NAME=JSON`."""
    found = {}
    for text in parameters:
        name, _, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            raise InvalidRequest(f"parameter {name!r} must be NAME=JSON, as in 'logprobs=true'") from None
    return found
