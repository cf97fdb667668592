"""`aenv prune`: removes what a home folder keeps and nothing needs. No server is needed, and one may run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import quantities, settings
from .. import output, parameters
from ..formats import PUBLISHED, formats

if TYPE_CHECKING:
    from ...control.homes.pruning import Unused

_KINDS = ("rootfs", "requirements", "bundles", "code", "evals", "logs")  # as in `homes/pruning.py`


@click.command("prune")
@click.option(
    "--older-than",
    callback=parameters.seconds,
    metavar="DURATION",
    default="30d",
    show_default=True,
    help="Remove what was not used for so long.",
)
@click.option(
    "--only",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    help="Remove this kind of thing; any number of times.  [default: all of them]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@parameters.STORE
@parameters.BLOBS
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all that is kept.  [default: $AENV_HOME, or ~/.aenv]",
)
@formats(*PUBLISHED)
def command(
    older_than: float,
    kinds: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    store: str,
    blobs: str,
    home: Path | None,
    as_json: bool,
) -> None:
    """Remove what no instance uses and no version refers to, and old evals and logs.

    Rootfs, requirements and code are made again when an instance needs them. Records, data that was pulled, and
    the storage of services stay.
    """
    from ...control.homes import pruning

    place = pruning.Place((home or settings.home()).expanduser(), store, blobs)
    if not place.home.is_dir():
        raise output.Failure(f"there is no home folder {str(place.home)!r}", hint="aenv prune --home FOLDER")
    chosen = kinds or _KINDS
    found = asyncio.run(pruning.unused(place, chosen, older_than))
    if found and not dry_run:
        if not as_json:
            _print(found)
        total = output.size(sum(one.size_bytes for one in found))
        parameters.confirm(f"remove {len(found)} things, {total} in all", yes)
        found = asyncio.run(pruning.prune(place, chosen, older_than))
    if as_json:
        rows = [
            {"kind": one.kind, "name": one.name, "size_bytes": one.size_bytes, "last_used": one.last_used}
            for one in found
        ]
        output.json({"removed": not dry_run, "items": rows})
        return
    if dry_run:
        _print(found)
    total = output.size(sum(one.size_bytes for one in found))
    output.talk(f"{'would remove' if dry_run else 'removed'} {len(found)} things, {total} in all")


def _print(found: list[Unused]) -> None:
    rows = [
        (one.kind, one.name, output.size(one.size_bytes), quantities.spell_seconds(_age(one.last_used)))
        for one in found
    ]
    output.table(("Kind", "Name", "Size", "Unused for"), rows)


def _age(moment: float) -> float:
    """In days, or in minutes for what is younger."""
    seconds = max(0.0, time.time() - moment)
    unit = 86400 if seconds >= 86400 else 60
    return seconds // unit * unit
