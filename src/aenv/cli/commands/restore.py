"""`aenv restore`: put what `aenv backup` has saved into a home folder. No server is needed."""

from __future__ import annotations

from pathlib import Path

import click

from ...base import settings
from .. import output, parameters
from ..help_pages import documented


@documented("restore", examples=("aenv restore aenv.backup", "aenv restore aenv.backup --home /srv/aenv"))
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace existing records; they are kept as aenv.db.before-TIME.")
@parameters.STORE
@parameters.BLOBS
@parameters.HOME
def command(file: Path, force: bool, store: str, blobs: str, home: Path | None) -> None:
    """Restore a backup into a home folder that no gateway uses.

    The whole backup is checked before anything is changed.
    """
    from ...control.homes import backups

    into = (home or settings.home()).expanduser()
    made = backups.restore(into, file, store=store, blobs=blobs, force=force)
    output.talk(f"restored the records of {made.made_at} and {made.bundles} bundles into {str(into)!r}")
