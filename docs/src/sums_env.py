"""An environment with tasks: sums to work out, checked by a reward."""

from typing import Annotated

from aenv import Context, Depends, ToolError, register_function, register_reward, register_tool

TASKS = {"easy": (2, 3), "hard": (1789, 4211)}


class Sheet:
    """What the agent has answered."""

    def __init__(self) -> None:
        self.answer: int | None = None


CurrentSheet = Annotated[Sheet, Depends(Sheet)]


def numbers(context: Context) -> tuple[int, int]:
    return TASKS[context.variables.get("SUM_TASK", "easy")]


@register_tool
def submit(answer: int, sheet: CurrentSheet) -> dict:
    """Give the final answer.

    Args:
        answer: The sum.
    """
    sheet.answer = answer
    return {"observation": "noted", "done": True}


@register_reward
def is_right(context: Context, sheet: CurrentSheet) -> dict:
    """1.0 for the right sum."""
    return {"reward": float(sheet.answer == sum(numbers(context)))}


@register_function
def list_tasks(split: str = "") -> list[dict]:
    """What there is to do."""
    if split:
        raise ToolError(f"no split {split!r}; there are none")
    return [{"id": id, "variables": {"SUM_TASK": id}} for id in TASKS]


@register_function
def get_task(context: Context) -> dict:
    """What is to be done in this instance."""
    first, second = numbers(context)
    id = context.variables.get("SUM_TASK", "easy")
    return {"id": id, "instruction": f"What is {first} + {second}? Submit the sum.", "max_steps": 5}


@register_function
def play_gold(context: Context, sheet: CurrentSheet) -> dict:
    """Play the reference solution, for validation."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("play_gold is for validation; create the instance with AENV_VALIDATION=1")
    submit(sum(numbers(context)), sheet)
    return {"steps": 1, "answer": sum(numbers(context))}


@register_function
def list_cheats(context: Context) -> list[dict]:
    """Attempts to be rewarded for nothing, for validation."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("list_cheats is for validation; create the instance with AENV_VALIDATION=1")
    claim = {"tool": "submit", "arguments": {"answer": "1.0"}}
    return [{"name": "submit the reward", "kind": "spoof-output", "steps": [claim]}]
