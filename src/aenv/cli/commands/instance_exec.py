"""`aenv instance exec`: a command in an instance."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .. import connection, output, parameters
from ..connection import Gateway
from ..help_pages import documented

if TYPE_CHECKING:
    from ...client.remote import Remote


def _words(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        raise click.MissingParameter(ctx=ctx, param=parameter)
    return words


@documented(
    "exec",
    context_settings={"allow_interspersed_args": False},
    examples=(
        "aenv instance exec my-env-3q -- python -m pytest -q",
        "aenv instance exec my-env-3q 'ls | wc -l'",
        "aenv instance exec --stdin my-env-3q cat < notes.txt",
    ),
)
@click.argument("id")
@click.argument("words", metavar="COMMAND...", nargs=-1, callback=_words)
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass stdin to the command, up to its end.")
@click.option(
    "--timeout",
    type=parameters.DURATION,
    help="Maximum duration of the command. After it, the exit code is 124.  [default: no limit]",
)
@connection.options
def command(gateway: Gateway, id: str, words: tuple[str, ...], with_stdin: bool, timeout: float | None) -> int:
    """Run a command in an instance, and exit with its exit code.

    A single word is run by a shell. Options of 'exec' stand before ID: everything after ID belongs to the command.
    """
    stdin = sys.stdin.buffer.read() if with_stdin else b""

    async def run(remote: Remote) -> int:
        command = words[0] if len(words) == 1 else words
        async for piece in remote.exec_stream(command, timeout=timeout, stdin=stdin):
            if piece.exit_code is not None:
                return piece.exit_code
            output.raw(piece.data, to_stderr=piece.stream == "stderr")
        raise output.Failure("the connection ended before the command did")

    return gateway.run_on(id, run)
