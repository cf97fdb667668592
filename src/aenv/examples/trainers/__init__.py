"""One program for each trainer, to begin with: `python -m aenv.examples.trainers.gymnasium`.

Where no policy is trained, one without a model plays: it adds up the numbers of a problem, which solves some.
"""

from __future__ import annotations

import json
import re
from typing import Any

NAME = "gsm-tools@1.0.0"
FINAL_TOOLS = ["submit_answer"]
VARIABLES = {"GSM_DIFFICULTY": "1", "GSM_COUNT": "4"}  # four problems with two numbers each


def expression(problem: str, sign: str = "+") -> str:
    """What to calculate: the numbers of a problem, with a sign between them."""
    return f" {sign} ".join(re.findall(r"\d+", problem))


def call(tool: str, **arguments: Any) -> str:
    """A tool call as a model writes it."""
    return json.dumps({"tool": tool, "arguments": arguments})
