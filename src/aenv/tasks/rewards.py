"""Rewards: the number in what a reward function returned, and whether it is one that can be believed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_KEYS = ("total_reward", "reward", "score", "resolved")
_FULL = 1.0 - 1e-9  # sums of parts such as 0.1 do not add up exactly


@dataclass(frozen=True)
class Reward:
    """A reward's number, or why there is none that counts."""

    number: float | None
    invalid: str = ""
    raw: Any = None

    @property
    def is_full(self) -> bool:
        return not self.invalid and self.number is not None and self.number >= _FULL

    @property
    def is_declared_invalid(self) -> bool:
        """Whether the environment itself says that it cannot judge, which is an honest answer."""
        return isinstance(self.raw, dict) and bool(self.raw.get("invalid"))

    def __str__(self) -> str:
        return f"invalid ({self.invalid})" if self.invalid else f"{self.number:g}"


def read(value: Any) -> Reward:
    """The reward in the answer of a reward function: the value itself, or the first key that is one."""
    found = value
    if isinstance(value, dict):
        key = next((key for key in _KEYS if key in value), None)
        if key is None and not value.get("invalid"):
            return Reward(None, f"the reward has none of {', '.join(_KEYS)}", value)
        found = value[key] if key else 0.0
    if not isinstance(found, bool | int | float):
        return Reward(None, f"the reward is no number: {str(found)[:80]!r}", value)
    number = float(found)
    if not math.isfinite(number):
        return Reward(None, f"the reward is {number}", value)
    if not 0.0 <= number <= 1.0 + 1e-9:
        return Reward(number, f"the reward {number:g} is outside 0..1", value)
    why = str(value["invalid"]) if isinstance(value, dict) and value.get("invalid") else ""
    return Reward(min(number, 1.0), why, value)
