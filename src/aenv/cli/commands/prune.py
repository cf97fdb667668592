"""`aenv prune`: removes files of a home folder that are no longer used. Gateways may run meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from ...base import quantities, settings
from ...control.homes.prunable import KINDS, Prunable, PruneScope
from .. import output, parameters
from ..help_pages import documented
from ..output_formats import PUBLISHED, formats


@documented(
    "prune",
    examples=("aenv prune --dry-run", "aenv prune --older-than 7d --only rootfs --only requirements --yes"),
)
@click.option(
    "--older-than",
    type=parameters.DURATION,
    default="30d",
    help="Remove only what has not been used for this long.",
)
@click.option(
    "--only",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="Remove only this kind; repeatable.  [default: all kinds]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, without removing it.")
@parameters.YES
@parameters.STORE
@parameters.BLOBS
@parameters.HOME
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
    """Remove unused files, old results and old logs of a home folder.

    Unused are a rootfs, requirements and code that no instance runs with, and bundles without a version. They are
    made again when an instance needs them. Records, pulled data and the storage of services are kept.
    """
    from ...control.homes import pruning

    place = PruneScope((home or settings.home()).expanduser(), store, blobs)
    if not place.home.is_dir():
        raise output.Failure(
            f"the home folder {str(place.home)!r} does not exist", hint="aenv prune --home FOLDER"
        )
    chosen = kinds or KINDS
    found = asyncio.run(pruning.unused(place, chosen, older_than))
    if found and not dry_run:
        if not as_json:
            _print(found)
        total = output.size(sum(one.size_bytes for one in found))
        parameters.confirm(f"remove {len(found)} items, {total} in total", yes)
        found = asyncio.run(pruning.prune(place, chosen, older_than))
    if as_json:
        shown = ("kind", "name", "size_bytes", "last_used")
        rows = [{name: getattr(one, name) for name in shown} for one in found]
        output.json({"removed": not dry_run, "items": rows})
        return
    if dry_run:
        _print(found)
    total = output.size(sum(one.size_bytes for one in found))
    output.talk(f"{'would remove' if dry_run else 'removed'} {len(found)} items, {total} in total")


def _print(found: list[Prunable]) -> None:
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
