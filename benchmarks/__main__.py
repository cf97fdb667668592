"""Measure our speed, against the published package's or a target, and print the table."""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from aenv.artifacts.requirements import folder_for
from tests.netns import namespace
from tests.venvs import create

from . import containers, control, creates, crowds, environments, floods, native, pods, registry, rollouts, scale
from .measures import Bench
from .processes import ROOT
from .report import Row, as_json, table

AGAINST_PUBLISHED = ("import", "enter", "tool", "function", "reward", "concurrent", "gateway", "start", "idle")
CONTROL_PLANE = ("control", "list", "queue", "upload", "floods")
NATIVE = ("native",)
ENVIRONMENTS = ("environments",)
SCALE = ("scale",)
ROLLOUTS = ("rollout",)
NAMES = (*AGAINST_PUBLISHED, *CONTROL_PLANE, *NATIVE, *ENVIRONMENTS, *SCALE, *ROLLOUTS)
ONLY_BY_NAME = ("rollout-2000", "docker", "kubernetes")
"""What takes minutes and is measured small by another name, or needs programs that few machines have."""


def main() -> int:
    options = _options()
    names = options.names or list(NAMES)
    if {*names} & {*AGAINST_PUBLISHED, *NATIVE}:
        create("published")  # now: a namespace sees no package index
    if {*names} & {*ENVIRONMENTS} and not options.inside:
        _fetch_requirements()
    # Both sides start from compiled bytecode; an editable install has none until somebody imports it.
    compileall.compile_dir(ROOT / "src" / "aenv", quiet=1)
    if not options.inside and os.geteuid() == 0 and shutil.which("ip"):
        # The published client dials port 8081 whatever it is told; in a namespace of our own it is free.
        with namespace() as space:
            # Not by `ip netns exec`, which mounts another /sys: without control groups nothing holds a bomb.
            enter = ["nsenter", f"--net=/run/netns/{space.name}"]
            command = [*enter, sys.executable, "-m", "benchmarks", *sys.argv[1:], "--inside"]
            return subprocess.run(command, env={**os.environ, "UV_OFFLINE": "1"}).returncode
    rows = measure(Bench(), names)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(as_json(rows), indent=2) + "\n")
    return exit_code(rows, check=options.check)


def _fetch_requirements() -> None:
    """Those of the environments that are measured: in the namespace uv has its cache alone."""
    requirements = ROOT / "src" / "aenv" / "envs" / "python" / "requirements.txt"
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(folder_for(requirements, Path(home)))


def exit_code(rows: list[Row], *, check: bool) -> int:
    return 1 if check and not all(row.met for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    # The empty list is a choice too: Python 3.11 checks the default of "*" against the choices.
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*NAMES, *ONLY_BY_NAME, []],
        metavar="NAME",
        help=", ".join((*NAMES, *ONLY_BY_NAME)),
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(bench: Bench, names: list[str]) -> list[Row]:
    """The rows of all that is named."""
    measures: dict[str, Callable[[], list[Row]]] = {
        "import": bench.imports,
        "concurrent": bench.concurrent,
        "gateway": bench.through_gateway,
        "start": bench.starts,
        "idle": bench.idle,
        "control": control.overhead,
        "list": registry.lists,
        "queue": control.queue,
        "upload": registry.upload,
        "floods": floods.rows,
        "native": lambda: [*native.rows(bench), *crowds.rows(), *creates.rows()],
        "environments": environments.rows,
        "scale": scale.rows,
        "rollout": rollouts.rows,
        "docker": containers.rows,
        "kubernetes": pods.rows,
        "rollout-2000": lambda: rollouts.crowd(2_000),
    }
    rows: list[Row] = []
    for name in names:
        print(f"measuring {name}", file=sys.stderr)
        rows += measures[name]() if name in measures else bench.calls(name)
    return rows


if __name__ == "__main__":
    sys.exit(main())
