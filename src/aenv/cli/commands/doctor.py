"""`aenv doctor`: what this host supports, what is missing, and what to do; and whether the walls hold here."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import settings
from ...control.homes import disk_usage
from .. import output
from ..help_pages import documented
from ..output_formats import formats

_LOW = 0.05  # of the disk

if TYPE_CHECKING:
    from ...attacks.verdicts import Verdict


@documented("doctor", examples=("aenv doctor", "sudo aenv doctor --attack"))
@click.option(
    "--attack",
    is_flag=True,
    help="Run the list of attacks against a temporary gateway; the exit code is 1 when one succeeds.",
)
@formats()
def command(as_json: bool, attack: bool) -> int:
    """Check how this host can isolate and limit instances.

    The exit code is 1 when instances cannot be isolated.
    """
    from ...isolation.sandbox import probe

    checks, missing = probe.checks(), probe.missing_isolation()
    if attack and not missing:
        return _attack(as_json)
    home = settings.home()
    disk = disk_usage.sizes(home)
    if as_json:
        said = {"isolation": missing is None, "missing": missing, "checks": [asdict(one) for one in checks]}
        output.json({**said, "home": str(home), "disk": disk, "free_bytes": disk_usage.free_bytes(home)})
        return 1 if missing else 0
    marks = {True: "ok", False: "MISSING", None: "-"}
    rows = [(check.name, marks[check.ok], check.found, check.fix) for check in checks]
    rows.append(_disk_row(home, disk))
    output.table(("Check", "State", "Found", "What to do"), rows)
    if missing:
        output.error(f"instances cannot be isolated on this host: {missing}")
        return 1
    output.talk("instances can be isolated on this host")
    return 0


def _disk_row(home: Path, disk: dict[str, int]) -> tuple[str, str, str, str]:
    """What the home folder takes, and whether there is room for more."""
    free = disk_usage.free_bytes(home)
    largest = sorted(((size, part) for part, size in disk.items() if size), reverse=True)[:3]
    parts = ", ".join(f"{part} {output.size(size)}" for size, part in largest)
    found = (
        f"{home} takes {output.size(sum(disk.values()))}{f' ({parts})' if parts else ''}; {output.size(free)} free"
    )
    is_low = free < disk_usage.total_bytes(home) * _LOW
    return (
        "disk",
        "LOW" if is_low else "ok",
        found,
        "run 'aenv prune --dry-run' to see what can be removed" if is_low else "",
    )


def _attack(as_json: bool) -> int:
    import asyncio

    found = asyncio.run(_verdicts())
    if found is None:
        return 130
    failed = [one for one in found if one.state in ("broken", "unclear")]
    if as_json:
        rows = [
            {**asdict(one.attack), "state": one.state, "said": one.said, "control": one.control} for one in found
        ]
        output.json({"held": not failed, "attacks": rows})
    else:
        told = [(one.attack.family, one.attack.name, one.state, one.control[:40], one.said[:100]) for one in found]
        output.table(("Family", "Attack", "State", "Outside", "What was seen"), told)
    counted = Counter(one.state for one in found)
    output.talk(", ".join(f"{number} {state}" for state, number in counted.items()))
    for one in failed:
        output.error(f"{one.attack.name} ({one.attack.tries}) is {one.state}: {one.said}")
    return 1 if failed else 0


async def _verdicts() -> list[Verdict] | None:
    """All of them; None when a signal stopped the run. Either way nothing of it is left."""
    import asyncio

    from ...attacks import verdicts
    from .. import progress
    from ..supervise import stop_signals

    async def run() -> list[Verdict]:
        found: list[Verdict] = []
        with progress.lines("attacking a temporary gateway") as show:
            async with verdicts.staged(_gateway) as stage:
                async for one in verdicts.verdicts(stage):
                    # On a terminal one line in the place of the last; else a line each.
                    tell = show if sys.stderr.isatty() else output.talk
                    tell(f"{one.state:<12} {one.attack.name}")
                    found.append(one)
        return found

    with stop_signals() as stop:
        running, stopped = asyncio.create_task(run()), asyncio.create_task(stop.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            output.talk("stopped; cleaning up")
            running.cancel()
            await asyncio.wait({running})
            return None
        stopped.cancel()
        return running.result()


@asynccontextmanager
async def _gateway(home: Path, projects: list[Path]) -> AsyncIterator[tuple[str, str]]:
    """A gateway with an account, so that no other user of this host can use it meanwhile."""
    from ...rollouts.own_gateway import own_gateway

    key = await _administrator(home)
    # The store and the blobs of this home, whatever the variables of the operator's own gateway say.
    options = [*map(str, projects[1:]), "--store", "sqlite", "--blobs", ""]
    options += ["--freeze-after", "0", "--rate-limit", "0"]
    async with own_gateway(projects[0], home, engine="native", options=options) as url:
        yield url, key


async def _administrator(home: Path) -> str:
    """The token of a new account."""
    import asyncio

    command = ["-m", "aenv.cli", "token", "create", "--user", "doctor", "--role", "admin"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *(*command, "--home", str(home), "--store", "sqlite"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await process.communicate()
    if process.returncode:
        raise output.Failure(
            f"cannot create an account at the temporary gateway: {wrong.decode(errors='replace')[-300:]}"
        )
    return said.decode().strip()
