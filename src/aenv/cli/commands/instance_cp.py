"""`aenv instance cp`: files into an instance, and out of it."""

from __future__ import annotations

import re

import click

from .. import connection, output
from ..connection import Gateway
from ..help_pages import documented

_REMOTE = re.compile(r"([a-z0-9-]{2,}):(.*)\Z", re.DOTALL)


@documented(
    "cp", examples=("aenv instance cp notes.txt my-env-3q:inputs/", "aenv instance cp my-env-3q:result.json .")
)
@click.argument("source")
@click.argument("target")
@connection.options
def command(gateway: Gateway, source: str, target: str) -> None:
    """Copy a file or a folder into an instance or out of it.

    Write the end in the instance as ID:PATH. PATH is relative to the instance's workspace. The content of a folder
    goes into the folder at the other end.
    """
    there, here = _REMOTE.match(target), _REMOTE.match(source)
    if bool(there) == bool(here):
        raise click.UsageError("one of SOURCE and TARGET must be ID:PATH, and the other one a local path")
    if there:
        count = gateway.run_on(there[1], lambda remote: remote.upload(source, there[2]))
    else:
        assert here
        count = gateway.run_on(here[1], lambda remote: remote.download(here[2], target))
    output.talk(f"copied {count} file{'' if count == 1 else 's'}")
