"""Blocks that other work makes run, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import Block


@dataclass(frozen=True)
class Untried:
    """A block that other work makes run."""

    block: Block
    reason: str


UNTRIED = {
    "readme: tau2 training": Untried(
        Block("000", "# Entrypoint for AReaL"), "needs the TAU2 environment and AReaL"
    ),
    "article: python example": Untried(
        Block("001", "from typing import Any, Dict", 33, "env.call_reward({})"),
        "needs the TAU2 environment and the OpenAI Agents SDK",
    ),
    "article: benchmarks": Untried(
        Block("001", "from aenv import Environment", 4, 'call_tool("tau2_get_task_info", {})'),
        "needs the TAU2 environment",
    ),
    "sdk: return value processing": Untried(
        Block("003", "# MCP original result format", 18),
        "is no program: it tells what call_tool does inside, with names from nowhere",
    ),
}
