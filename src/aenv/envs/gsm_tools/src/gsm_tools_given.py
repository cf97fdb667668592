"""Problems that were not made here: read from the variable GSM_PROBLEM, and written as such.

{"text": "Ada has 3 boxes of 4 kites. How many kites are that?", "steps": ["3 * 4"]}
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gsm_tools_arithmetic import NotExact, evaluate
from gsm_tools_problems import LEVELS, Problem

VARIABLE = "GSM_PROBLEM"
MAX_TEXT = 4_000
MAX_STEPS = 40
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_TEXT,
            "description": "The word problem. It ends in a question whose answer is one exact number.",
        },
        "steps": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_STEPS,
            "items": {"type": "string", "minLength": 1},
            "description": "Calculations that solve it, in digits with + - * / and brackets, such as '8 * 4'. "
            "A later one may use the value of an earlier one. The value of the last one is the answer.",
        },
    },
    "required": ["text", "steps"],
    "additionalProperties": False,
}


class NotGiven(ValueError):
    """What the variable holds is not a problem; says why."""


def given(value: str) -> Problem:
    """The problem that the variable holds."""
    try:
        told = json.loads(value)
    except (ValueError, RecursionError):
        raise NotGiven(f"{VARIABLE} is not JSON") from None
    if not isinstance(told, dict) or {*told} != {"text", "steps"}:
        raise NotGiven(f"{VARIABLE} is an object with 'text' and 'steps'")
    text, steps = told["text"], told["steps"]
    if not isinstance(text, str) or not 0 < len(text.strip()) <= len(text) <= MAX_TEXT:
        raise NotGiven(f"{VARIABLE}: 'text' is a text of up to {MAX_TEXT} characters")
    if not isinstance(steps, list) or not 0 < len(steps) <= MAX_STEPS:
        raise NotGiven(f"{VARIABLE}: 'steps' is a list of 1 to {MAX_STEPS} calculations")
    for number, step in enumerate(steps, 1):
        if not isinstance(step, str):
            raise NotGiven(f"{VARIABLE}: step {number} is not a text")
        try:
            evaluate(step)
        except NotExact as error:
            raise NotGiven(f"{VARIABLE}: step {number}: {error}") from None
    name = f"given-{hashlib.sha256(json.dumps([text, steps]).encode()).hexdigest()[:12]}"
    return Problem(min(len(steps), LEVELS[-1]), 0, text, tuple(steps), name)


def written(problem: Problem) -> dict[str, Any]:
    """A problem as the variable would hold it."""
    return {"text": problem.text, "steps": list(problem.steps)}
