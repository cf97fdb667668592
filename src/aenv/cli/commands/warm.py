"""`aenv warm`: have blank instances of an environment ready."""

from __future__ import annotations

import click

from ...base import refs
from .. import connection, output, parameters
from ..connection import Gateway
from ..formats import formats


@click.command("warm")
@click.argument("ref", metavar="NAME[@VERSION]", callback=parameters.reference)
@click.option("--count", type=click.IntRange(0, 10_000), required=True, help="How many; 0 lets them go.")
@connection.options
@formats()
def command(gateway: Gateway, ref: refs.Ref, count: int, as_json: bool) -> None:
    """Keep blank instances of an environment ready, so that a create only has to fill one in.

    Until the gateway stops; `deployConfig.warmPool` says it for good.
    """
    from urllib.parse import quote

    version = quote(ref.version or ref.range or "latest", safe="")
    pool = gateway.run(lambda api: api.call("PUT", f"/env/{ref.name}/{version}/warm", {"count": count}))
    if as_json:
        output.json(pool)
        return
    output.data(f"{pool['environment']}: {pool['kept']} kept, {pool['ready']} ready")
    if pool["kept"] < count:
        output.talk("memory holds no more: see --warm-memory of aenv serve")
