"""Makes both task sets, and prints what is in them."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from aenv.examples import synthesis

MEANINGS = {"not a task": "of which no task could be made (a number or a name that fits was not found)"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m aenv.examples.synthesis", description=synthesis.__doc__)
    parser.add_argument("--count", type=int, default=6, help="tasks of each set")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument(
        "--out", type=Path, default=Path("tasks"), help="new folder for the sets (default: %(default)s)"
    )
    given = parser.parse_args()
    if there := [path for path in map(synthesis.set_file, synthesis.SETS) if (given.out / path).exists()]:
        sys.exit(f"synthesis: {str(given.out / there[0])!r} is there already; name another folder with --out")
    print(
        f"each task is played by a weak agent, which adds all numbers; the sets are written to {given.out}",
        flush=True,
    )
    for name, made in asyncio.run(synthesis.make(given.count, given.seed, given.out)).items():
        dropped = ", ".join(f"{count} {MEANINGS.get(why, why)}" for why, count in made.dropped.items()) or "none"
        print(f"{name}: kept {len(made.tasks)} of {made.draws} proposals; dropped: {dropped}")
        for one in made.tasks:
            print(f"  solved {one.solve_rate:.0%} of the time: {one.instruction}")
    print(
        f"play one with: aenv eval gsm-tools --agent oracle --tasks {given.out / synthesis.set_file('templates')}"
    )


if __name__ == "__main__":
    main()
