"""Play one task: with the model at OPENAI_BASE_URL, else with a script.

python -m aenv.examples.tau2_rl [--domain mock] [--task create_task_1]

Without data of tau2 there is one task, of `data/`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from aenv import AEnvError

from .agent import play, run_agent_return_reward
from .scripted_clerk import ScriptedClerk

_DATA = "TAU2_DATA_DIR"
_NO_DATA = "no data for tau2"  # as the environment says it
_OWN_DATA = Path(__file__).parent / "data"


async def _reward_with_data(data: dict[str, str]) -> float:
    """Where the platform has no data, and none was named, the small data of this example is used."""
    try:
        return await _reward(data)
    except AEnvError as error:
        if os.environ.get(_DATA) or _NO_DATA not in str(error):
            raise
    print("no data of tau2 is here; playing a task of the example's own", file=sys.stderr)
    os.environ[_DATA] = str(_OWN_DATA)
    return await _reward(data)


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
        reward = asyncio.run(_reward_with_data({"domain": given.domain, "task_id": given.task}))
    except AEnvError as error:
        sys.exit(f"tau2_rl: {error}")
    print(f"{given.domain} {given.task}: reward {reward:g}")


if __name__ == "__main__":
    main()
