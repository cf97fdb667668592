"""Plays one task with a ready agent, whose model is scripted, and prints what came of it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

ROOT, AGENT = sys.argv[1:]
sys.path.insert(0, ROOT)

from aenv.rollouts import Runner  # noqa: E402
from tests.agent_models import Said, chat, messages, responses  # noqa: E402
from tests.streaming_models import streaming_model  # noqa: E402

SOLVED = "echo solved > answer.txt; cat answer.txt"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
IN_MCP, IN_SPACE = "mcp__environment__", "mcp__environment/"
SCRIPTS: dict[str, tuple[str, Any, list[Said]]] = {
    "claude-code": (
        "gsm-tools",
        messages,
        [(f"{IN_MCP}read_problem", {}), (f"{IN_MCP}submit_answer", {"answer": "42"}), "done"],
    ),
    "codex": (
        "gsm-tools",
        responses,
        [(f"{IN_SPACE}read_problem", {}), (f"{IN_SPACE}submit_answer", {"answer": "42"}), "done"],
    ),
    "openhands": (
        "gsm-tools",
        chat,
        [("read_problem", {}), ("submit_answer", {"answer": "42"}), "done"],
    ),
    "smolagents": (
        "gsm-tools",
        chat,
        [("read_problem", {}), ("submit_answer", {"answer": "42"}), ("final_answer", {"answer": "done"})],
    ),
    "mini-swe-agent": (
        "mini-terminal",
        chat,
        [("bash", {"command": SOLVED}), ("bash", {"command": SUBMIT})],
    ),
}


async def main() -> None:
    env, api, said = SCRIPTS[AGENT]
    tasks = [{"id": "one", "instruction": "do it"}] if env == "mini-terminal" else None
    async with (
        streaming_model(*api(*said)) as model,
        Runner(1, retries=0, capture=model.url, capture_key="sk-the-real-key") as runner,
    ):
        (one,) = await runner.run(env, AGENT, tasks, limit=1, model="scripted")
    trajectory = one.trajectory
    assert trajectory, one.reason
    found = {
        "outcome": one.outcome,
        "reason": one.reason,
        "calls": [call.name for call in trajectory.calls],
        "answers": [call.text for call in trajectory.calls],
        "exchanges": [exchange.is_whole for exchange in trajectory.exchanges],
        "unrecorded": trajectory.unrecorded,
        "keys": sorted({"sk-the-real-key" in str(asked.headers) for asked in model.asked}),
        "tools": sorted({_name(tool) for asked in model.asked for tool in asked.body.get("tools", [])}),
    }
    print(json.dumps(found))


def _name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or tool.get("function", {}).get("name"))


asyncio.run(main())
