"""`aenv backup`: the records and bundles of a home folder in one file. No server is needed."""

from __future__ import annotations

from pathlib import Path

import click

from ...base import settings
from .. import output, parameters
from ..help_pages import documented
from ..parameters import FILE


@documented("backup", examples=("aenv backup aenv.backup", "aenv backup aenv.backup --force"))
@click.argument("file", type=FILE)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@parameters.STORE
@parameters.BLOBS
@parameters.HOME
def command(file: Path, force: bool, store: str, blobs: str, home: Path | None) -> None:
    """Save accounts, environments, services and bundles to a file.

    Gateways can go on serving meanwhile. Only the owner of FILE can read it: it holds the keys of this
    installation.
    """
    from ...control.homes import backups

    made = backups.save((home or settings.home()).expanduser(), file, store=store, blobs=blobs, force=force)
    for digest in made.missing:
        output.talk(f"bundle {digest} has a record, but no file; the backup does not contain it")
    output.data(str(file))
    output.talk(f"saved the records and {made.bundles} bundles, {output.size(file.stat().st_size)}")
