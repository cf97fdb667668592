"""Blocks that other work makes run, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import Block, given, indented, replaced, unmasked


@dataclass(frozen=True)
class Untried:
    """A block that other work makes run."""

    block: Block
    reason: str


TAU2_LOOP = Block(
    "001",
    "from typing import Any, Dict",
    33,
    "env.call_reward({})",
    repairs=(
        indented("00000 0 1122 10 0 0 0 111 0 0 0 0 1112 1221 1 00"),
        unmasked("tau2@1.0.0"),
        given("missing import", "from agents import Runner"),
        # The SDK takes a text, and `call_function` has always been async.
        replaced("missing await", "instructions=env", "instructions=await env"),
    ),
)
UNTRIED = {
    "readme: tau2 training": Untried(
        Block("000", "# Entrypoint for AReaL"), "needs the TAU2 environment and AReaL"
    ),
    "article: python example": Untried(
        TAU2_LOOP, "runs where the OpenAI Agents SDK is: tests/integrations/test_documents_loop.py"
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
