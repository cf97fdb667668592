"""`aenv instance logs`: what an instance has printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import connection, output, prefixes
from ..connection import Gateway
from ..help_pages import documented

if TYPE_CHECKING:
    from ...client.api import Api


@documented("logs", examples=("aenv instance logs my-env-3q", "aenv instance logs my-env-3q --follow"))
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines until the instance ends.")
@connection.options
def command(gateway: Gateway, id: str, follow: bool) -> None:
    """Print the output of an instance."""

    async def lines(api: Api) -> None:
        from ...client.remote import Remote

        async for line in Remote(api, await prefixes.instance(api, id)).logs(follow=follow):
            output.data(line)

    gateway.run(lines)
