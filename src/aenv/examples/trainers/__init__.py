"""One program for each trainer, to begin with: `python -m aenv.examples.trainers.gymnasium`.

Where no policy is trained, one without a model plays: it adds up the numbers of a problem, which solves some.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aenv.rollouts.own_gateway import own_gateway

NAME = "gsm-tools@1.0.0"
FINAL_TOOLS = ["submit_answer"]
OPTIONS: dict[str, Any] = {
    "final_tools": FINAL_TOOLS,
    "split": "train",
    "variables": {"GSM_DIFFICULTY": "1", "GSM_COUNT": "4"},  # four problems with two numbers each
}
LINE = "line@1.0.0"
LINE_PROJECT = Path(__file__).parent / "line"


def expression(problem: str, sign: str = "+") -> str:
    """What to calculate: the numbers of a problem, with a sign between them."""
    return f" {sign} ".join(re.findall(r"\d+", problem))


def call(tool: str, **arguments: Any) -> str:
    """A tool call as a model writes it."""
    return json.dumps({"tool": tool, "arguments": arguments})


@asynccontextmanager
async def line_gateway() -> AsyncIterator[str]:
    """The URL of a gateway with `line@1.0.0`: AENV_SYSTEM_URL if that is set, else one for the time of a block."""
    if url := os.environ.get("AENV_SYSTEM_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="aenv-line-") as folder:
        async with own_gateway(LINE_PROJECT, Path(folder) / "home") as url:
            yield url
