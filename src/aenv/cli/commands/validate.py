"""`aenv validate`: whether an environment keeps its contract, and whether its reward can be cheated."""

from __future__ import annotations

import click

from .. import connection, output, task_selection
from ..help_pages import documented
from ..output_formats import formats


@documented(
    "validate", examples=("aenv validate", "aenv validate ./my-env", "aenv validate gsm-tools --limit 5 --json")
)
@click.argument("env", metavar="[ENV|DIR]", default=".")
@task_selection.options
@task_selection.without_self_check
@click.option(
    "--determinism",
    is_flag=True,
    help="Record seeded calls for every task, and replay them on a fresh instance.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Print passed checks, known findings and skipped checks as well."
)
@formats(plain="text", json_help="Print the report as JSON.")
@connection.options
def command(
    env: str,
    chosen: task_selection.ChosenTasks,
    no_self_check: bool,
    determinism: bool,
    verbose: bool,
    as_json: bool,
    gateway: connection.Gateway,
) -> int:
    """Check an environment and try to cheat its reward.

    ENV is the name of an environment, DIR the folder of a project; without them, the project is in the current
    folder. The checks are: the environment keeps its contract, the reference solution of every task passes,
    doing nothing does not pass, and no known cheat gets the reward. The exit code is 1 when a check fails.
    """
    from ...rollouts import validation

    selection = task_selection.selected(env, gateway, chosen, self_check=not no_self_check)
    report = validation.validated(
        selection.opened, selection.wanted, selection.concurrency, determinism=determinism
    )
    if as_json:
        output.json(report.as_json())
    else:
        output.data(report.text(verbose=verbose))
    return 0 if report.passed else 1
