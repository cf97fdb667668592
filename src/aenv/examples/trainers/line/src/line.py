"""A line of seven cells: walk from one cell to another."""

import random
from dataclasses import dataclass
from typing import Annotated, Any

from aenv import Depends, register_function, register_reset, register_reward, register_tool

CELLS = 7


@dataclass
class Walk:
    """Where the walker is, and where it should go."""

    position: int = 0
    goal: int = 6


CurrentWalk = Annotated[Walk, Depends(Walk)]


@register_tool
def move(by: int, walk: CurrentWalk) -> dict[str, Any]:
    """Walk one cell.

    Args:
        by: -1 to the left, 1 to the right.
    """
    walk.position = min(CELLS - 1, max(0, walk.position + by))
    return {"observation": f"{walk.position} {walk.goal}", "done": walk.position == walk.goal}


@register_reward
def arrived(walk: CurrentWalk) -> dict[str, Any]:
    """1.0 at the goal."""
    return {"reward": float(walk.position == walk.goal)}


@register_reset
def reset(walk: CurrentWalk, seed: int | None = None) -> dict[str, Any]:
    """Two other cells."""
    walk.position, walk.goal = random.Random(seed).sample(range(CELLS), 2)
    return get_task(walk)


@register_function
def get_task(walk: CurrentWalk) -> dict[str, Any]:
    """What is to be done."""
    return {"id": "line", "instruction": f"{walk.position} {walk.goal}", "max_steps": 6}
