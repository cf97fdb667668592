"""Project templates: real files below `templates/`, with `$name`, `$version` and `$python` to fill in.

A project is the files of `templates/shared`, then those of its template on top; of config.json a template has
only the fields in which it differs. Every file carries the suffix `.tmpl`, so that linters, packagers and git do
not take it for what it becomes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATES = ("default", "agent", "benchmark", "browser", "web-app", "gym", "fastmcp", "service")

_FOLDER = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"
_CONFIG = Path("config.json")

_PYTHON = ".".join(map(str, sys.version_info[:2]))  # what instances run on: an image is to have the same


def render(template: str, name: str, version: str) -> dict[Path, str]:
    """The files of a new project: relative path to text."""
    files: dict[Path, str] = {}
    for layer in (_FOLDER / "shared", _FOLDER / template):
        for path in sorted(layer.rglob(f"*{_SUFFIX}")):
            text = path.read_text(encoding="utf-8").replace("$name", name).replace("$version", version)
            text = text.replace("$python", _PYTHON)
            file = path.relative_to(layer).with_suffix("")
            files[file] = _on_top(files[file], text) if file == _CONFIG and file in files else text
    return files


def _on_top(config: str, changes: str) -> str:
    """The text of a config.json with the fields of another one in their places."""

    def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        both = {key: merged(below[key], value) for key, value in above.items() if isinstance(below.get(key), dict)}
        return {**below, **above, **both}

    return json.dumps(merged(json.loads(config), json.loads(changes)), indent=2, ensure_ascii=False) + "\n"


def write(folder: Path, files: Mapping[Path, str]) -> list[Path]:
    """Write the files below `folder`, in the place of those that are there; returns their paths."""
    written = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
