"""`aenv release`: make a version immutable."""

from __future__ import annotations

import click

from ...base import refs
from .. import output, parameters


@click.command("release")
@click.argument("ref", metavar="NAME@VERSION", callback=parameters.exact_reference)
def command(ref: refs.Ref) -> None:
    """Release a version: from then on nobody can change it, and only an admin can delete it."""
    from ..connection import ask_hub

    ask_hub(lambda hub: hub.release(ref))
    output.data(f"released {ref}")
