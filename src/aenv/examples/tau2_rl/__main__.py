"""Play one task: with the model at OPENAI_BASE_URL, else with a script.

python -m aenv.examples.tau2_rl [--domain mock] [--task create_task_1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from aenv import AEnvError

from .agent import play, run_agent_return_reward
from .scripted_clerk import ScriptedClerk


async def _reward(data: dict[str, str]) -> float:
    if os.environ.get("OPENAI_BASE_URL"):
        return await run_agent_return_reward(data)
    return await play(data, ScriptedClerk(), "script")


def main() -> None:
    """Print the reward of one task."""
    parser = argparse.ArgumentParser(prog="python -m aenv.examples.tau2_rl", description=main.__doc__)
    parser.add_argument("--domain", default="mock", help="mock, airline, retail, telecom or telecom-workflow")
    parser.add_argument("--task", default="create_task_1", help="id of the task")
    given = parser.parse_args()
    try:
        reward = asyncio.run(_reward({"domain": given.domain, "task_id": given.task}))
    except AEnvError as error:
        sys.exit(f"tau2_rl: {error}")
    print(f"{given.domain} {given.task}: reward {reward:g}")


if __name__ == "__main__":
    main()
