"""Paths that patches and archives bring."""

from __future__ import annotations

from pathlib import PurePosixPath


def leads_out(path: str) -> bool:
    """Whether a path is not surely below the folder that it is for. Links in that folder are another question."""
    parts = PurePosixPath(path).parts
    return not parts or path.startswith("/") or ".." in parts or "\0" in path
