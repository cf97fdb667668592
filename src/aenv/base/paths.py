"""Paths that others wrote: what they name below a folder of ours, and nothing outside it."""

from __future__ import annotations

from pathlib import Path


def below(folder: Path, path: str | Path) -> Path | None:
    """What `path` names below `folder`, with all links followed; None where nothing is there, or it leads out.

    For a folder that no process changes meanwhile. One that is written to needs `engines/files_below.py`.
    """
    try:
        top = folder.resolve(strict=True)
        place = (top / path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # not there; a loop of links; a zero character
        return None
    return place if place.is_relative_to(top) else None
