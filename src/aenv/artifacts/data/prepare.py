"""`prepare`: what instances of a benchmark need besides its records, made ready ahead of them.

The environment knows how: `prepare.py` in its project folder gets an order on stdin, as JSON, and prints a line of
JSON for each step, and for each task that is ready or cannot be. Its target is `<home>/data/<name>-prepared`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.config import Project
from ...base.errors import InvalidRequest, NotFound, StartFailed
from ...base.locks import alone
from ..requirements import find_uv
from .builtin import built_in
from .data_folders import on_host

_PROGRAM = "prepare.py"


@dataclass(frozen=True)
class PreparedTask:
    """How it went with one task: `ready` says from what it was made, `failed` why it was not."""

    id: str
    ready: str = ""
    failed: str = ""


def preparable(name: str) -> Project:
    """The built-in environment that can prepare the data of that name."""
    known: dict[str, Project] = {}
    for versions in built_in().values():
        for project in versions.values():
            if project.data and (project.path / _PROGRAM).is_file():
                known.setdefault(project.data.name, project)  # its own name comes before its aliases
    if name not in known:
        raise NotFound(
            f"there is nothing to prepare for {name!r}; there is {', '.join(sorted(known)) or 'nothing'}"
        )
    return known[name]


def prepare(
    name: str, home: Path, instances: Sequence[str], base: str, on_step: Callable[[str], None]
) -> Iterator[PreparedTask]:
    """Make the tasks ready, one after another; without names, all of the data. What is ready is left as it is."""
    project = preparable(name)
    assert project.data
    data = on_host(project.data, home)
    if data is None:
        raise InvalidRequest(f"no data for {name}: aenv data pull {name}, or set {project.data.variable}")
    target = home.expanduser().absolute() / "data" / f"{name}-prepared"
    target.mkdir(parents=True, exist_ok=True)
    order: dict[str, object] = {
        "data": str(data),
        "target": str(target),
        "instances": [*instances],
        "base": base,
        "uv": find_uv(),
    }
    with alone(target.with_name(f".{name}-prepared.lock"), f"{name} is being prepared by another program"):
        yield from _run([sys.executable, str(project.path / _PROGRAM)], order, on_step)


def _run(command: list[str], order: dict[str, object], on_step: Callable[[str], None]) -> Iterator[PreparedTask]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            with process.stdin as given:
                json.dump(order, given)
            for line in process.stdout:
                said = json.loads(line)
                if step := said.pop("step", ""):
                    on_step(f"{said['id']}: {step}")
                else:
                    yield PreparedTask(**said)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise StartFailed(f"{command[-1]!r} failed with exit code {process.returncode}")
