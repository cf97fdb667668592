"""`aenv backup` and `aenv restore`: the records and bundles of a home folder in one file. No server is needed."""

from __future__ import annotations

from pathlib import Path

import click

from ...base import settings
from .. import output, parameters

_HOME = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
@parameters.STORE
@parameters.BLOBS
@_HOME
def command(file: Path, force: bool, store: str, blobs: str, home: Path | None) -> None:
    """Save accounts, environments, services, records and bundles to FILE, while gateways go on serving.

    FILE is readable by its owner alone: it holds the keys of this installation.
    """
    from ...control.homes import backups

    made = backups.save((home or settings.home()).expanduser(), file, store=store, blobs=blobs, force=force)
    for digest in made.missing:
        output.talk(f"bundle {digest} is in the records, and not on the disk; it is not in the backup")
    output.data(str(file))
    output.talk(f"saved the records and {made.bundles} bundles, {output.size(file.stat().st_size)}")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--force", is_flag=True, help="Also where records are; they are kept beside, as aenv.db.before-….")
@parameters.STORE
@parameters.BLOBS
@_HOME
def restore(file: Path, force: bool, store: str, blobs: str, home: Path | None) -> None:
    """Put a backup in place, into a home folder that no gateway has open. All of it is checked first."""
    from ...control.homes import backups

    into = (home or settings.home()).expanduser()
    made = backups.restore(into, file, store=store, blobs=blobs, force=force)
    output.talk(f"restored the records of {made.made_at} and {made.bundles} bundles into {str(into)!r}")
