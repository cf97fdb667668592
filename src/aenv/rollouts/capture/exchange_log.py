"""What writes the exchanges of one rollout down, as they end."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence

from ...client.chat import ModelFailed
from ..journal import Journal, NotRecorded, encoded
from ..results import TokenCount
from ..trajectory import Trajectory
from .model_exchange import ModelExchange, Prefixes, as_line

logger = logging.getLogger("aenv.rollouts.capture")

MAX_EXCHANGE_BYTES = 16 << 20
"""Of one line. Of a longer one the messages and the reply are not kept, but their length and sha256."""


class ExchangeLog:
    """The exchanges of one rollout: lines of its journal, and of its trajectory. It keeps no secret."""

    def __init__(self, journal: Journal, trajectory: Trajectory) -> None:
        self._journal = journal
        self._trajectory = trajectory
        self._prefixes = Prefixes()
        self._read = self._written = 0
        self._is_counted = False
        self.failure: ModelFailed | NotRecorded | None = None
        """Why the last exchange gave the agent nothing, where that is not the agent's fault."""
        self.count = 0

    @property
    def tokens(self) -> TokenCount | None:
        """Of all exchanges, where the server counts them."""
        return TokenCount(self._read, self._written) if self._is_counted else None

    def add(self, exchange: ModelExchange, secrets: Sequence[str] = (), *, is_given_up: bool = False) -> None:
        """Write one down, with `***` for each of `secrets`. One that cannot be written fails the rollout.

        `is_given_up`: the agent did not wait for it.
        """
        self.count = exchange.number
        if usage := exchange.usage:
            self._is_counted, self._read, self._written = True, self._read + usage[0], self._written + usage[1]
        failed = ModelFailed(exchange.error or "the model's server refused", status_code=exchange.status)
        self.failure = None if exchange.is_whole or is_given_up or not failed.is_passing else failed
        try:
            self._write(exchange, secrets)
        except NotRecorded as error:
            logger.warning("an exchange with a model is not on record: %s", error)
            self.failure = error

    def _write(self, exchange: ModelExchange, secrets: Sequence[str]) -> None:
        tools = exchange.request.get("tools")
        digest = ""
        if isinstance(tools, list) and tools and _masked(plain := encoded(tools), secrets) == plain:
            digest = self._journal.tools(tools)
            self._trajectory.captured_tools[digest] = tools
        line = as_line(exchange, self._trajectory.head.rollout, self._prefixes, digest)
        data = _masked(encoded(line), secrets)
        if len(data) > MAX_EXCHANGE_BYTES:
            kept = {"model": exchange.request.get("model"), "cut_bytes": len(data)}
            kept["sha256"] = hashlib.sha256(data).hexdigest()
            error = f"the exchange has {len(data)} bytes, and is not kept"
            line = {**line, "request": kept, "reply": {}, "error": exchange.error or error}
            line.pop("after", None)
            self._prefixes = Prefixes()  # what is not in the file cannot be referred to
            data = _masked(encoded(line), secrets)
        self._journal.write(data)
        self._trajectory.exchange_lines.append(data)


def _masked(data: bytes, secrets: Sequence[str]) -> bytes:
    for secret in secrets:
        for text in {secret, json.dumps(secret)[1:-1]}:
            data = data.replace(text.encode(), b"***") if text else data
    return data
