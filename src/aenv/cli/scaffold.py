"""Project templates: real files below `templates/`, with `$name`, `$version` and `$python` to fill in.

A project is the files of `templates/shared`, then those of its template on top. Every file carries the
suffix `.tmpl`, so that linters, packagers and git do not take it for what it becomes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

TEMPLATES = ("default", "fastmcp", "benchmark", "service")

_FOLDER = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"

_PYTHON = ".".join(map(str, sys.version_info[:2]))  # what instances run on: an image is to have the same


def render(template: str, name: str, version: str) -> dict[Path, str]:
    """The files of a new project: relative path to text."""
    files = {}
    for layer in (_FOLDER / "shared", _FOLDER / template):
        for path in sorted(layer.rglob(f"*{_SUFFIX}")):
            text = path.read_text(encoding="utf-8").replace("$name", name).replace("$version", version)
            text = text.replace("$python", _PYTHON)
            files[path.relative_to(layer).with_suffix("")] = text
    return files


def write(folder: Path, files: Mapping[Path, str]) -> list[Path]:
    """Write the files below `folder`, in the place of those that are there; returns their paths."""
    written = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
