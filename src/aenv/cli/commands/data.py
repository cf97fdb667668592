"""`aenv data`: folders of data that environments need and that cannot be shipped. No server is needed."""

from __future__ import annotations

import click

from ...base import settings
from .. import output
from ..formats import PUBLISHED, formats
from ..groups import Group
from . import prepare


@click.group("data", cls=Group)
def command() -> None:
    """Fetch the data and programs that environments need, and list what is here."""


command.add_command(prepare.command)


@command.command("list")
@formats(*PUBLISHED)
def list_data(as_json: bool) -> None:
    """Print which data is known, and where this machine has it."""
    from ...artifacts.data.sources import overview

    found = overview(settings.home())
    if as_json:
        output.json(found)
    else:
        output.table(("Name", "Folder", "Variable", "Revision", "About"), [(*each.values(),) for each in found])


@command.command("pull")
@click.argument("name")
@click.option(
    "--from", "source", default="", metavar="URL|DIR", help="Another place: a folder, an archive, a URL."
)
@click.option("--force", is_flag=True, help="In the place of what is there.")
def pull(name: str, source: str, force: bool) -> None:
    """Fetch the data NAME, compare its checksums, and keep it in the home folder.

    NAME is tau2, swebench, terminalbench or browser. The last is Chromium; apt-get fetches it, without root.

    An interrupted pull goes on where it stopped. At a URL there must be a manifest.json with the path, sha256 and
    size of every file; what was pulled has one, so that any web server can offer it to others.
    """
    from ...artifacts.data.pull import pull as fetch
    from ..progress import bar

    home = settings.home()
    pulled = fetch(name, home, bar, source=source, force=force)
    what = f"{name}, {f'revision {pulled.revision}' if pulled.revision else 'of no known revision'}"
    amount = f"{len(pulled.files)} files, {output.size(pulled.total_bytes)}"
    output.data(f"pulled {what}: {amount}, in {home / 'data' / name}")
