"""`aenv rescore`: finished rollouts, replayed and judged again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import connection, output, recorded_runs, task_selection
from ..help_pages import documented
from ..output_formats import formats
from ..parameters import FILE


@documented(
    "rescore",
    examples=("aenv rescore run.jsonl", "aenv rescore run.jsonl --env my-env@1.1.0 --out rescored.jsonl"),
)
@click.argument("file", type=FILE)
@recorded_runs.environment
@click.option("--out", type=FILE, metavar="FILE", help="Write a journal with the new results to FILE.")
@task_selection.options
@task_selection.without_self_check
@formats(plain="text", json_help="Print each new result as a line of JSON.")
@connection.options
def command(
    file: Path,
    env: str | None,
    out: Path | None,
    chosen: task_selection.ChosenTasks,
    no_self_check: bool,
    as_json: bool,
    gateway: connection.Gateway,
) -> int:
    """Judge finished rollouts again.

    The verifier is that of the same environment, or of another version of it. FILE is the journal that 'aenv eval'
    or Runner wrote. The calls of each rollout are repeated on an instance of its own, which then gives the reward.
    Where an answer differs from the recorded one, the outcome is 'invalid'. Rollouts that were not judged, such as
    those that ended with 'timeout', keep their outcomes.
    """
    from dataclasses import replace

    from ...rollouts import replay, summaries
    from ...rollouts.exports import exchange

    if out:
        exchange.check_new(out)
    selection, trajectories = recorded_runs.selected(
        file, env, gateway, chosen, finished=True, self_check=not no_self_check
    )
    found = replay.replayed(selection.opened, selection.wanted, trajectories, selection.concurrency, judge=True)
    judged_on = next((one.run for one in found if one.run), None)
    results = [one.rescored(judged_on) for one in found]
    for one, result in zip(found, results, strict=True):
        before = one.trajectory.result
        if as_json:
            output.line(result.as_json())
        elif before:
            output.data(
                output.plain(f"{recorded_runs.name(one.trajectory.head)}: {_told(before)} → {_told(result)}")
            )
    if out:
        changed = [replace(one.trajectory, result=result) for one, result in zip(found, results, strict=True)]
        exchange.save(out, changed, "journal")
    (output.talk if as_json else output.data)(f"\n{summaries.table(results, output.width())}")
    return int(summaries.failed(results))


def _told(result: Any) -> str:
    return f"{result.reward:g}" if result.reward is not None else f"{result.outcome} ({result.reason})"
