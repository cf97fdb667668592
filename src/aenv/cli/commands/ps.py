"""`aenv ps`: instances, and what they use."""

from __future__ import annotations

import click

from .. import connection, output, usage
from ..connection import Gateway
from ..formats import formats


@click.command("ps")
@usage.filters
@connection.options
@formats()
def command(gateway: Gateway, chosen: dict[str, str], as_json: bool) -> None:
    """List instances with their CPU (over their lives), memory, age, and how long they have left."""
    reply = gateway.run(lambda api: usage.ask(api, chosen))
    if as_json:
        output.json(reply)
    else:
        usage.show(reply, usage.rows(reply))
