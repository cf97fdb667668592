"""A foreman that plans, and workers that it makes for each part: `python -m aenv.examples.agents.hierarchical`."""

from __future__ import annotations

import asyncio

from .stage import play

WORK = {"food": "sandwiches for six", "place": "the meadow by the lake", "games": "a ball and a kite"}


def script(role: str, message: str) -> str:
    """The planner names the parts, and each worker does its own."""
    return "; ".join(WORK) if role == "planner" else WORK[message]


if __name__ == "__main__":
    asyncio.run(play("foreman", "Plan a picnic.", script))
