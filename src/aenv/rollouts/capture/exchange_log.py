"""What writes the exchanges of one rollout down, as they end."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from ...base.errors import NotJudged
from ...base.outcomes import Outcome
from ...client.chat import ModelFailed
from .. import faults
from ..journal import Journal, NotRecorded, encoded
from ..results import TokenCount
from ..trajectory import Trajectory
from .covered import covered
from .model_exchange import ModelExchange, Prefixes, as_line

logger = logging.getLogger("aenv.rollouts.capture")

MAX_EXCHANGE_BYTES = 16 << 20
"""Of one line. Of a longer one the messages and the reply are not kept, but their length and sha256."""


class ExchangeLog:
    """The exchanges of one rollout: lines of its journal, and of its trajectory. It keeps no secret.

    `keeps=False` leaves them to the journal alone, for a rollout that may go on for days.
    """

    def __init__(self, journal: Journal, trajectory: Trajectory, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self._journal = journal
        self._trajectory = trajectory
        self._prefixes = Prefixes()
        self._read = self._written = 0
        self._is_counted = False
        self.failure: ModelFailed | NotJudged | NotRecorded | None = None
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
        self.failure = None if exchange.is_whole or is_given_up else _not_the_agents(exchange)
        try:
            self._write(exchange, secrets)
        except NotRecorded as error:
            logger.warning("an exchange with a model is not on record: %s", error)
            self.failure = error

    def _write(self, exchange: ModelExchange, secrets: Sequence[str]) -> None:
        tools = exchange.request.get("tools")
        digest = ""
        if isinstance(tools, list) and tools and covered(plain := encoded(tools), secrets) == plain:
            digest = self._journal.tools(tools)
            if self._keeps:
                self._trajectory.captured_tools[digest] = tools
        line = as_line(exchange, self._trajectory.head.rollout, self._prefixes, digest)
        data = covered(encoded(line), secrets)
        if len(data) > MAX_EXCHANGE_BYTES:
            kept = {"model": exchange.request.get("model"), "cut_bytes": len(data)}
            kept["sha256"] = hashlib.sha256(data).hexdigest()
            error = f"the exchange has {len(data)} bytes, and is not kept"
            line = {**line, "request": kept, "reply": {}, "error": exchange.error or error}
            line.pop("after", None)
            self._prefixes = Prefixes()  # what is not in the file cannot be referred to
            data = covered(encoded(line), secrets)
        written = self._journal.write(data)
        if self._keeps:
            self._trajectory.exchange_lines.append(written)


def _not_the_agents(exchange: ModelExchange) -> ModelFailed | NotJudged | None:
    """What an exchange without a reply says about the infrastructure; None where the request itself was wrong.

    URL and key are of the run, so it is not the agent's fault when they are wrong.
    """
    failed = ModelFailed(exchange.error, status_code=exchange.status)
    if failed.is_passing:
        return failed
    fix = faults.fix_of(failed)
    return NotJudged(Outcome.NOT_READY, f"the model's server answered {exchange.status}; {fix}") if fix else None
