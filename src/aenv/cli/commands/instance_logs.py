"""`aenv instance logs`: what an instance has printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import connection, output
from ..connection import Gateway
from ..help_pages import documented

if TYPE_CHECKING:
    from ...client.remote import Remote


@documented("logs", examples=("aenv instance logs my-env-3q", "aenv instance logs my-env-3q --follow"))
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines until the instance ends.")
@connection.options
def command(gateway: Gateway, id: str, follow: bool) -> None:
    """Print the output of an instance."""

    async def lines(remote: Remote) -> None:
        async for line in remote.logs(follow=follow):
            output.data(line)

    gateway.run_on(id, lines)
