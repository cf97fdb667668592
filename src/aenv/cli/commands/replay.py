"""`aenv replay`: the calls of recorded rollouts, made again on fresh instances."""

from __future__ import annotations

from pathlib import Path

import click

from .. import connection, output, recorded_runs, task_selection
from ..help_pages import documented
from ..output_formats import formats
from ..parameters import FILE


@documented("replay", examples=("aenv replay run.jsonl", "aenv replay run.jsonl --env ./my-env"))
@click.argument("file", type=FILE)
@recorded_runs.environment
@task_selection.options
@formats(plain="text", json_help="Print each replay as a line of JSON.")
@connection.options
def command(
    file: Path, env: str | None, chosen: task_selection.ChosenTasks, as_json: bool, gateway: connection.Gateway
) -> int:
    """Make recorded calls again and compare the answers.

    The first answer that differs is reported. FILE is the journal that 'aenv eval' or Runner wrote. Each rollout
    is replayed on an instance of its own. The exit code is 1 when an answer differs, or a replay breaks off.
    """
    from ...rollouts import replay

    selection, trajectories = recorded_runs.selected(file, env, gateway, chosen)
    found = replay.replayed(selection.opened, selection.wanted, trajectories, selection.concurrency)
    for one in found:
        head = one.trajectory.head
        if as_json:
            output.line({**recorded_runs.told(head), "same": one.is_same, "calls": one.calls, "detail": one.told})
        else:
            output.data(output.plain(f"{recorded_runs.name(head)}: {one.told}"))
    return int(not all(one.is_same for one in found))
