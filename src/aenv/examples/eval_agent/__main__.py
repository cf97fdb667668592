"""Evaluates both agents, and prints a line for each: how many rollouts were judged, and their mean reward."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from aenv.examples import eval_agent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m aenv.examples.eval_agent", description=eval_agent.__doc__)
    parser.add_argument("--tasks", type=int, default=10, help="number of tasks")
    parser.add_argument("--repeat", type=int, default=1, help="attempts at each task")
    parser.add_argument("--difficulty", type=int, default=1, choices=range(1, 6), help="of the problems")
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), help="folder for the journals (default: %(default)s)"
    )
    given = parser.parse_args()
    found = asyncio.run(eval_agent.evaluate(given.tasks, given.repeat, given.out, given.difficulty))
    for name, results in found.items():
        rewards = [one.reward for one in results if one.reward is not None]
        mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else "none"
        print(f"{name}: {len(rewards)} of {len(results)} judged, mean reward {mean}")
    print(f"what they did is in {given.out}; look at it with: aenv trajectories show {given.out / 'add_up.jsonl'}")


if __name__ == "__main__":
    main()
