"""`aenv data prepare`: what an environment needs before its verdicts are asked for, made ahead.

The same command for all environments, which makes the self-check of their tasks. An environment that needs more
has a command of its own name in `OWN`, which may call `self_check` at its end.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from .. import connection, output
from ..formats import formats
from . import eval

OWN: Mapping[str, str] = {"swebench": "aenv.cli.commands.prepare_swebench:command"}
"""Environments that need more than the self-check, each with the "module:attribute" of its command."""


class _ByEnvironment(click.Group):
    """Takes the name of any environment as a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.partition("@")[0]
        if name in OWN:
            module, _, attribute = OWN[name].partition(":")
            found: click.Command = getattr(importlib.import_module(module), attribute)
            return found
        return _of_any(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(OWN)


@click.command("prepare", cls=_ByEnvironment, subcommand_metavar="ENV [OPTIONS]")
def command() -> None:
    """Make the self-check of an environment's tasks ahead, so that no verdict has to wait for it.

    May be repeated: what has been checked is known. 'aenv data prepare ENV --help' shows the options.
    """


def _of_any(env: str) -> click.Command:
    @click.command(env)
    @eval.selection
    @formats(plain="text", json_help="Print each task as a line of JSON.")
    @connection.options
    def prepare(as_json: bool, **given: Any) -> int:
        """Make the self-check of each task. The exit code is 1 when the verdicts of one cannot be trusted."""
        return self_check(env, as_json=as_json, **given)

    return prepare


def self_check(env: str, *, as_json: bool, **given: Any) -> int:
    """The self-check of the chosen tasks; `given` has the options of `eval.selection` and `connection.options`."""
    from ...rollouts import preparation

    if "/" in env or env in (".", ".."):
        raise click.UsageError(
            f"{env!r} is a folder, whose gateway would forget the checks; push it, and use its name"
        )
    where = eval.asked(env, **given)
    tell = output.line if as_json else lambda row: None
    found = preparation.prepared(where.opened, where.wanted, where.concurrency, tell)
    (output.talk if as_json else output.data)(preparation.told(found))
    return int(any(preparation.is_unready(row) for row in found))
