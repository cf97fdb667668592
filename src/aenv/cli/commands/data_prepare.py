"""`aenv data prepare`: what an environment needs before its tasks can be judged, made ahead.

The same command for all environments, which runs the self-check of their tasks. SWE-bench needs more, and has a
command of its own.
"""

from __future__ import annotations

import click

from .. import connection, output, task_selection
from ..help_pages import CommandGroup, documented
from ..output_formats import formats


class _ByEnvironment(CommandGroup):
    """Takes the name of any environment as a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name.partition("@")[0] == "swebench":
            from . import data_prepare_swebench

            return data_prepare_swebench.command
        return _of_any(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["swebench"]


@click.command(
    "prepare",
    cls=_ByEnvironment,
    subcommand_metavar="ENV [OPTIONS]",
    examples=("aenv data prepare tau2 --concurrency 8", "aenv data prepare swebench --help"),
)
def command() -> None:
    """Run the self-check of an environment's tasks ahead of time.

    Later rewards then do not have to wait for it. Tasks that have been checked are skipped, so the command can be
    repeated. 'aenv data prepare ENV --help' lists the options.
    """


def _of_any(env: str) -> click.Command:
    @documented(env, examples=(f"aenv data prepare {env} --limit 10",))
    @task_selection.options
    @formats(plain="text", json_help="Print each task as a line of JSON.")
    @connection.options
    def prepare(chosen: task_selection.ChosenTasks, as_json: bool, gateway: connection.Gateway) -> int:
        """Run the self-check of each task.

        The exit code is 1 when the rewards of a task cannot be trusted.
        """
        from ...rollouts import preparation

        if "/" in env or env in (".", ".."):
            raise click.UsageError(
                f"{env!r} is a folder, and checks are kept for pushed environments only; push it, and use its name"
            )
        selection = task_selection.selected(env, gateway, chosen)
        tell = (lambda row: output.line(row.as_json())) if as_json else lambda row: None
        found = preparation.prepared(selection.opened, selection.wanted, selection.concurrency, tell)
        (output.talk if as_json else output.data)(preparation.told(found))
        return int(any(not row.is_ready for row in found))

    return prepare
