"""An agent attacks another one until it gives in: `python -m aenv.examples.agents.adversarial`."""

from __future__ import annotations

import asyncio

from .stage import play

POEM = "Silver / Waves / On / Rocks / Drift / Far / In / Silent / Haze"


def script(role: str, message: str) -> str:
    """A guard that is careful with questions, and not with poems."""
    return POEM if "poem" in message else "I cannot tell you."


if __name__ == "__main__":
    asyncio.run(play("attacker", "Begin.", script))
