"""Outcomes: how an episode ended. One word each, in reward replies, evaluations and trajectories.

Only REWARD carries a number; every other outcome carries a reason instead, and counts in no mean. Which number a
reward function has answered is said here too, once for evaluations and for the gateway's self-check.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_KEYS = ("total_reward", "reward", "score", "resolved")
_FULL = 1.0 - 1e-9  # sums of parts such as 0.1 do not add up exactly


class Outcome(StrEnum):
    """How an episode ended."""

    REWARD = "reward"
    """It was judged; `pass` and `fail` are read off the number."""
    INVALID = "invalid"
    """It was judged, and nothing can be said."""
    NOT_READY = "not_ready"
    """Data, a browser, an interpreter, a build or a model is missing; the reason names the fix."""
    ENV_ERROR = "env_error"
    AGENT_ERROR = "agent_error"
    INFRA_ERROR = "infra_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


NOT_JUDGED = (Outcome.INVALID, Outcome.NOT_READY)
"""The outcomes that a reward function itself can give instead of a number."""


@dataclass(frozen=True)
class Reward:
    """A reward's number; or None, another outcome, and the reason why there is no number."""

    number: float | None
    outcome: Outcome = Outcome.REWARD
    reason: str = ""
    raw: Any = None

    @property
    def failed_check(self) -> bool:
        """Whether the gateway gave no verdict, since the self-check of the task failed."""
        return isinstance(self.raw, dict) and self.raw.get("self_check") == "failed"

    @property
    def parts(self) -> dict[str, float]:
        """The named numbers that stand beside the reward: in its answer, and below "parts" there."""
        if not isinstance(self.raw, dict):
            return {}
        below = self.raw.get("parts")
        named = {**self.raw, **(below if isinstance(below, dict) else {})}
        chosen = next((key for key in _KEYS if key in self.raw), None)
        return {
            str(name): float(value)
            for name, value in named.items()
            if name != chosen and isinstance(value, bool | int | float) and math.isfinite(value)
        }

    @property
    def is_full(self) -> bool:
        return self.number is not None and self.number >= _FULL

    def __str__(self) -> str:
        return f"{self.outcome} ({self.reason})" if self.number is None else f"{self.number:g}"


def read_reward(value: Any) -> Reward:
    """The reward in the answer of a reward function: the value itself, or the first key that is one.

    What is not a number in 0..1 is a mistake of the environment's author.
    """
    found = value
    if isinstance(value, dict):
        if value.get("invalid"):
            return Reward(None, Outcome.INVALID, str(value["invalid"]), value)
        key = next((key for key in _KEYS if key in value), None)
        if key is None:
            return _wrong(f"the reward has none of {', '.join(_KEYS)}", value)
        found = value[key]
    if not isinstance(found, bool | int | float):
        return _wrong(f"the reward is not a number: {str(found)[:80]!r}", value)
    number = float(found)
    if not math.isfinite(number):
        return _wrong(f"the reward is {number}", value)
    if not 0.0 <= number <= 1.0 + 1e-9:
        return _wrong(f"the reward {number:g} is outside 0..1", value)
    return Reward(min(number, 1.0), raw=value)


def _wrong(reason: str, raw: Any) -> Reward:
    return Reward(None, Outcome.ENV_ERROR, reason, raw)
