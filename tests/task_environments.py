"""Environments with tasks, as their authors write them, and ways to change them."""

from __future__ import annotations

SUMS = '''
from typing import Annotated

from aenv import Context, Depends, ToolError, register_function, register_reset, register_reward, register_tool


class Sheet:
    def __init__(self) -> None:
        self.answer = None


Current = Annotated[Sheet, Depends(Sheet)]


@register_tool
def submit(answer: int, sheet: Current) -> dict:
    """Give the answer."""
    sheet.answer = answer
    return {"observation": "noted", "done": True}


@register_tool
def look(context: Context) -> str:
    """The question again."""
    return "what is " + context.variables.get("SUM", "1+1")


@register_function
def list_tasks(split: str = "") -> list:
    """What there is to do."""
    if split not in ("", "train", "test"):
        raise ToolError(f"no split {split!r}; there are train, test")
    tasks = [("two", "1", "train"), ("six", "3", "test")]
    return [
        {"id": id, "variables": {"ID": id, "N": n, "SUM": f"{n}+{n}"}, "split": one}
        for id, n, one in tasks
        if split in ("", one)
    ]


@register_function
def get_task(context: Context) -> dict:
    """What is to be done here."""
    return {"id": context.variables["ID"], "instruction": f"what is {context.variables['SUM']}?"}


@register_function
def play_gold(context: Context, sheet: Current) -> dict:
    """Play the reference solution."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("play_gold is for validation; create the instance with AENV_VALIDATION=1")
    right = 2 * int(context.variables["N"])
    submit(right, sheet)
    return {"steps": 1, "seconds": id(sheet), "log": f"1 passed in 0.{id(sheet)}s"}


@register_reward
def right(context: Context, sheet: Current) -> float:
    """1.0 for the right sum."""
    return float(sheet.answer == 2 * int(context.variables.get("N", "0")))


@register_reset
def again(sheet: Current) -> str:
    """Forget the answer."""
    sheet.answer = None
    return "begin"
'''

SHELL = '''
import os
import subprocess

from aenv import Context, ToolError, register_function, register_reward, register_tool


@register_tool
def bash(command: str) -> str:
    """Run a command."""
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    return done.stdout + done.stderr


@register_function
def list_tasks(split: str = "") -> list:
    """What there is to do."""
    if split:
        raise ToolError("there are no splits")
    return [{"id": "only", "variables": {"VERDICT": "/workspace/test_it.sh"}}]


def verdict() -> str:
    return os.environ.get("VERDICT", "/workspace/test_it.sh")


@register_reward
def passes() -> float:
    """1.0 when the test passes."""
    if not os.path.exists(verdict()):
        with open(verdict(), "w") as file:
            file.write("test -f done")
    return float(subprocess.run(["/bin/sh", verdict()], cwd="/workspace").returncode == 0)
'''

GOLD = '''
@register_function
def play_gold(context: Context) -> dict:
    """Play the reference solution."""
    if context.variables.get("AENV_VALIDATION") != "1":
        raise ToolError("only in validation")
    bash("touch done")
    return {}
'''

BEGIN = '''
@register_tool
def begin() -> str:
    """Make the test ready."""
    passes()
    return "ready"
'''


DICE = '''
import random

from aenv import register_tool


@register_tool
def dice() -> float:
    """Roll it."""
    return random.random()
'''


def changed(code: str, *changes: tuple[str, str]) -> str:
    """The code with some of it replaced, each of which must be there."""
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    return code
