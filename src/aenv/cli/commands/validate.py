"""`aenv validate`: whether an environment keeps its contract, and whether its reward can be cheated."""

from __future__ import annotations

from typing import Any

import click

from .. import connection, output
from ..formats import formats
from . import eval


@click.command("validate")
@click.argument("env", metavar="ENV|DIR")
@eval.selection
@eval.without_check
@click.option("-v", "--verbose", is_flag=True, help="Print also what was held, known, or not applicable.")
@formats(plain="text", json_help="Print the report as JSON.")
@connection.options
def command(as_json: bool, verbose: bool, **given: Any) -> int:
    """Check an environment by its name, or the project in a folder. The exit code is 1 when a check fails.

    Checks its contract, that the reference solution of every task passes and that doing nothing does not, and that
    attempts to get the reward without solving the task are in vain.
    """
    from ...rollouts import validation

    where = eval.asked(**given)
    report = validation.validated(where.opened, where.wanted, where.concurrency)
    if as_json:
        output.json(report.as_json())
    else:
        output.data(report.text(verbose=verbose))
    return 0 if report.passed else 1
