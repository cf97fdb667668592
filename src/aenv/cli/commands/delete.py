"""`aenv delete`: take a version out of the hub."""

from __future__ import annotations

import click

from ...base import refs
from .. import output, parameters


@click.command("delete")
@click.argument("ref", metavar="NAME@VERSION", callback=parameters.exact_reference)
@click.option("--force", is_flag=True, help="Also a released version, which takes an admin.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(ref: refs.Ref, force: bool, yes: bool) -> None:
    """Delete a version. Instances of it that run go on to their end."""
    from ..connection import ask_hub

    parameters.confirm(f"delete {ref} for good", yes)
    ask_hub(lambda hub: hub.delete(ref, force=force))
    output.data(f"deleted {ref}")
