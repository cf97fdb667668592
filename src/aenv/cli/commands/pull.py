"""`aenv pull`: an environment's project, from the hub."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import refs
from .. import output, parameters
from ..help_pages import documented

if TYPE_CHECKING:
    from ...client.hub import Hub
    from ...client.hub_records import HubVersion


@documented("pull", examples=("aenv pull my-env", "aenv pull 'my-env@^1.2' --output ./copy"))
@click.argument("ref", metavar="NAME[@VERSION]", callback=parameters.reference)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the project.  [default: NAME in the current folder]",
)
@click.option(
    "--force", is_flag=True, help="Write into a folder that is not empty. Only files of the project are replaced."
)
def command(ref: refs.Ref, folder: Path | None, force: bool) -> None:
    """Download the project of an environment from the hub.

    VERSION may be a range, as in 'my-env@^1.2'. Without VERSION, it is the latest one.
    """
    from ...artifacts import bundles
    from ..connection import ask_hub

    folder = folder or Path(ref.name)
    if folder.exists() and any(folder.iterdir()) and not force:
        raise output.Failure(
            f"'{folder}' is not empty", hint="pass --force to replace the files of the project, and no others"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that the files need no further copy.
    with tempfile.TemporaryDirectory(prefix=".aenv-pull-", dir=folder.parent) as work:
        archive, unpacked = Path(work, "bundle.tar.gz"), Path(work, "unpacked")
        record = ask_hub(lambda hub: _fetch(hub, ref, archive))
        bundles.unpack(archive, unpacked)
        _move(unpacked, folder)
    output.data(f"pulled {record.name}@{record.version} into {folder}")


async def _fetch(hub: Hub, ref: refs.Ref, archive: Path) -> HubVersion:
    """The record of the version, whose bundle is in the file `archive` then."""
    from ..progress import bar

    record = await hub.get(ref)
    exact = refs.Ref(record.name, record.version)
    if not record.digest:
        raise output.Failure(f"the hub has a record of {exact}, but no bundle")
    with bar(f"downloading {exact}", record.size_bytes) as show:
        digest = await hub.download_bundle(exact, archive, show)
    if digest != record.digest:
        raise output.Failure(f"{exact} was replaced during the download", hint=f"aenv pull {exact}")
    return record


def _move(source: Path, target: Path) -> None:
    """Put every file and link below `source` in its place below `target`."""
    target.mkdir(exist_ok=True)
    for entry in os.scandir(source):
        place = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            if place.is_symlink():
                place.unlink()  # or the files would go where it leads
            _move(Path(entry.path), place)
        else:
            os.replace(entry.path, place)
