"""`aenv delete`: remove a version from the hub."""

from __future__ import annotations

import click

from ...base import refs
from .. import output, parameters
from ..help_pages import documented


@documented("delete", examples=("aenv delete my-env@1.0.0", "aenv delete my-env@1.0.0 --yes"))
@click.argument("ref", metavar="NAME@VERSION", callback=parameters.exact_reference)
@click.option(
    "--force", is_flag=True, help="Delete a released version as well. Only an administrator may do that."
)
@parameters.YES
def command(ref: refs.Ref, force: bool, yes: bool) -> None:
    """Delete a version of an environment from the hub.

    Its running instances continue.
    """
    from ..connection import ask_hub

    parameters.confirm(f"delete {ref} for good", yes)
    ask_hub(lambda hub: hub.delete(ref, force=force))
    output.data(f"deleted {ref}")
