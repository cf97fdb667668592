"""`aenv data`: folders of data that environments need and that cannot be shipped. No server is needed."""

from __future__ import annotations

import click

from ...base import settings
from .. import output
from ..help_pages import CommandGroup
from ..output_formats import PUBLISHED, formats
from . import data_prepare


@click.group("data", cls=CommandGroup, examples=("aenv data list", "aenv data pull tau2"))
def command() -> None:
    """Fetch and prepare the data that benchmarks need."""


command.add_command(data_prepare.command)


@command.command("list", examples=("aenv data list",))
@formats(*PUBLISHED)
def list_data(as_json: bool) -> None:
    """List the known data, and where it is on this machine."""
    from ...artifacts.data.sources import overview

    found = overview(settings.home())
    headers = ("Name", "Folder", "Variable", "Revision", "About")
    output.answer(found, headers, [(*each.values(),) for each in found], as_json=as_json)


@command.command(
    "pull", examples=("aenv data pull tau2", "aenv data pull swebench --from ./swebench", "aenv data pull browser")
)
@click.argument("name")
@click.option(
    "--from", "source", default="", metavar="URL|DIR", help="Fetch from this folder, archive or URL instead."
)
@click.option("--force", is_flag=True, help="Replace data that is already there.")
def pull(name: str, source: str, force: bool) -> None:
    """Fetch the data of a benchmark into the home folder.

    NAME is tau2, swebench, terminalbench or browser. The last one is Chromium, which apt-get fetches without root.
    All checksums are compared, and an interrupted pull continues where it stopped.

    A URL must have a manifest.json with the path, sha256 and size of every file. Pulled data has one, so any web
    server can offer it.
    """
    from ...artifacts.data.pull import pull as fetch
    from ..progress import bar

    home = settings.home()
    pulled = fetch(name, home, bar, source=source, force=force)
    what = f"{name}, {f'revision {pulled.revision}' if pulled.revision else 'unknown revision'}"
    amount = f"{len(pulled.files)} files, {output.size(pulled.total_bytes)}"
    output.data(f"pulled {what}: {amount}, in {home / 'data' / name}")
