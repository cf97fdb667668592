"""Two agents debate, and a third one decides: `python -m aenv.examples.agents.debate`."""

from __future__ import annotations

import asyncio

from .stage import play

SPEECHES = {
    ("for", "Cats are better than dogs."): "Cats need no walks.",
    ("against", "Cats need no walks."): "Walks are what keeps us healthy.",
    ("for", "Walks are what keeps us healthy."): "Not at six on a rainy morning.",
    ("against", "Not at six on a rainy morning."): "Then most of all.",
}


def script(role: str, message: str) -> str:
    """Each side answers what the other said last."""
    return "against, by endurance" if role == "judge" else SPEECHES[role, message]


if __name__ == "__main__":
    asyncio.run(play("moderator", "Cats are better than dogs.", script))
