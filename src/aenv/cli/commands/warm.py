"""`aenv warm`: have spare instances of an environment ready."""

from __future__ import annotations

import click

from ...base import refs
from .. import connection, output, parameters
from ..connection import Gateway
from ..help_pages import documented
from ..output_formats import formats


@documented("warm", examples=("aenv warm my-env@1.0.0 --count 8", "aenv warm my-env --count 0"))
@click.argument("ref", metavar="NAME[@VERSION]", callback=parameters.reference)
@click.option(
    "--count",
    type=parameters.Number(0, 10_000),
    required=True,
    help="Number of spare instances to keep ready; 0 ends them.",
)
@connection.options
@formats()
def command(gateway: Gateway, ref: refs.Ref, count: int, as_json: bool) -> None:
    """Keep spare instances of an environment ready.

    A create takes a spare instance, which is faster than to start a new one. The setting holds until the gateway
    stops; 'deployConfig.warmPool' in config.json is permanent.
    """
    pool = gateway.run(lambda api: api.keep_warm(ref.name, ref.version or ref.range or "latest", count))
    if as_json:
        output.json(pool.model_dump(mode="json"))
        return
    output.data(f"{pool.environment}: {pool.kept} kept, {pool.ready} ready")
    if pool.kept < count:
        output.talk("there is not enough memory for more; see 'aenv serve --warm-memory'")
