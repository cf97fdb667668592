"""The import-time budget: what a start may load, and how much CPU time it may take.

CPU time is compared with that of the libraries which the program cannot do without, in the same run, so that the
budget means the same on every machine: it is what we ourselves add.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass

ROUNDS = 7
MORE = 2  # times as many, where that was too much


@dataclass(frozen=True)
class Budget:
    """A program, how many times the CPU time of `reference` it may take, and what it must not load."""

    program: str
    reference: str
    ratio: float
    never: tuple[str, ...]


SERVERS = ("starlette", "uvicorn", "fastmcp", "mcp", "rich")
BUDGETS = (
    Budget("import aenv", "import typing", 1.3, ("pydantic", "asyncio", "click", *SERVERS)),
    Budget(
        "from aenv import Environment, register_tool",
        "import asyncio, httptools, pydantic_core",
        1.8,
        ("pydantic", "click", *SERVERS),
    ),
    Budget(
        "import aenv.cli.main as main; main.run(['version', '--short'])",
        "import click",
        2.0,
        ("pydantic", "asyncio", *SERVERS),
    ),
)


def main() -> int:
    """Print a line for each budget; 1 when one of them is exceeded."""
    failed = False
    for budget in BUDGETS:
        reference, program = cpu_times([budget.reference, budget.program])
        for _ in range(MORE):  # a machine that is busy with one of them says nothing about it
            if program <= budget.ratio * reference:
                break
            again = cpu_times([budget.reference, budget.program])
            reference, program = min(reference, again[0]), min(program, again[1])
        ratio = program / reference
        loaded = unwanted_modules(budget)
        ok = ratio <= budget.ratio and not loaded
        failed |= not ok
        print(
            f"{'ok  ' if ok else 'FAIL'} {budget.program}: {program * 1000:.0f} ms of CPU time, {ratio:.2f} x "
            f"{budget.reference!r} (at most {budget.ratio:g})" + (f"; loads {', '.join(loaded)}" if loaded else "")
        )
    return int(failed)


def cpu_times(programs: list[str]) -> list[float]:
    """The least CPU seconds of each program, measured in turns so that a busy moment hurts all alike."""
    best = [float("inf")] * len(programs)
    for _ in range(ROUNDS):
        for index, program in enumerate(programs):
            best[index] = min(best[index], cpu_time(program))
    return best


def cpu_time(program: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def unwanted_modules(budget: Budget) -> list[str]:
    """Which of the modules that it must never load the program loads."""
    program = f"{budget.program}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(done.stderr.split())
    return [name for name in budget.never if name in loaded]


if __name__ == "__main__":
    sys.exit(main())
