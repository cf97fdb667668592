"""`aenv release`: make a version immutable."""

from __future__ import annotations

import click

from ...base import refs
from .. import output, parameters
from ..help_pages import documented


@documented("release", examples=("aenv release my-env@1.0.0",))
@click.argument("ref", metavar="NAME@VERSION", callback=parameters.exact_reference)
def command(ref: refs.Ref) -> None:
    """Make a version immutable.

    A released version cannot be changed, and only an administrator can delete it.
    """
    from ..connection import ask_hub

    ask_hub(lambda hub: hub.release(ref))
    output.data(f"released {ref}")
