"""`aenv instance logs`, `exec` and `cp`: what an instance prints, commands beside it, its files."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from .. import connection, output, parameters, prefixes
from ..connection import Gateway

if TYPE_CHECKING:
    from ...client.api import Api

_REMOTE = re.compile(r"([a-z0-9-]{2,}):(.*)\Z", re.DOTALL)


@click.command("logs")
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the instance ends.")
@connection.options
def logs(gateway: Gateway, id: str, follow: bool) -> None:
    """Print what an instance has printed."""

    async def lines(api: Api) -> None:
        from ...client.remote import Remote

        async for line in Remote(api, await prefixes.instance(api, id)).logs(follow=follow):
            output.data(line)

    gateway.run(lines)


def _command(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        raise click.MissingParameter(ctx=ctx, param=parameter)
    return words


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("id")
@click.argument("words", metavar="COMMAND...", nargs=-1, callback=_command)
@click.option(
    "-i", "--stdin", "with_stdin", is_flag=True, help="Give the command what comes on stdin, up to its end."
)
@click.option("--timeout", callback=parameters.seconds, metavar="DURATION", help="End the command after so long.")
@connection.options
def exec_(gateway: Gateway, id: str, words: tuple[str, ...], with_stdin: bool, timeout: float | None) -> int:
    """Run a command in an instance, and exit as it does. One word alone is a line for a shell.

    Options of `exec` stand before ID: what follows it is the command's.
    """
    stdin = sys.stdin.buffer.read() if with_stdin else b""

    async def run(api: Api) -> int:
        from ...client.remote import Remote

        command = words[0] if len(words) == 1 else words
        remote = Remote(api, await prefixes.instance(api, id))
        async for piece in remote.exec_stream(command, timeout=timeout, stdin=stdin):
            if piece.exit_code is not None:
                return piece.exit_code
            output.raw(piece.data, to_stderr=piece.stream == "stderr")
        raise output.Failure("the connection ended before the command did")

    return gateway.run(run)


@click.command("cp")
@click.argument("source")
@click.argument("target")
@connection.options
def copy(gateway: Gateway, source: str, target: str) -> None:
    """Copy a file or a folder: LOCAL ID:PATH into an instance, ID:PATH LOCAL out of it.

    PATH is relative to the instance's workspace. What is in a folder goes into the folder at the other end.
    """
    there, here = _REMOTE.match(target), _REMOTE.match(source)
    if bool(there) == bool(here):
        raise click.UsageError("one of SOURCE and TARGET must be ID:PATH, and the other a path here")

    async def transfer(api: Api) -> int:
        from ...client.remote import Remote

        if there:
            return await Remote(api, await prefixes.instance(api, there[1])).upload(source, there[2])
        assert here
        return await Remote(api, await prefixes.instance(api, here[1])).download(here[2], target)

    count = gateway.run(transfer)
    output.talk(f"copied {count} file{'' if count == 1 else 's'}")
