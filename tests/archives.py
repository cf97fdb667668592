"""Bundles for tests, honest and hostile: made entry by entry."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

CONFIG = json.dumps({"name": "echo", "version": "1.0.0", "description": "says it back", "tags": ["demo"]})
CODE = '''
from aenv import register_reward, register_tool


@register_tool
def echo(text: str, times: int = 1) -> str:
    """Say it back."""
    return text * times


@register_reward
def score(answer: str) -> float:
    """How good it was."""
    return 1.0
'''
FILES = {
    "config.json": CONFIG,
    "README.md": "# echo\n",
    "requirements.txt": "aenvironment\n# a comment\nhttpx>=0.27 # for later\n",
    "src/environment.py": CODE,
}


def make_folder(folder: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with these files."""
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def make_source(folder: Path, name: str = "echo", version: str = "1.0.0", **more: str | bytes) -> Path:
    """A project folder; `more` are further files, `__` in their names a slash and `_dot_` a dot."""
    config = json.dumps({"name": name, "version": version, "description": f"the {name}", "tags": ["demo"]})
    named = {path.replace("__", "/").replace("_dot_", "."): content for path, content in more.items()}
    return make_folder(folder, {**FILES, "config.json": config, **named})


def entry(path: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """An entry of an archive, with any field that its head can have."""
    info = tarfile.TarInfo(path)
    info.size = len(content)
    for name, value in fields.items():
        setattr(info, name, value)
    return info, content


def link(path: str, target: str, *, hard: bool = False) -> tuple[tarfile.TarInfo, bytes]:
    return entry(path, type=tarfile.LNKTYPE if hard else tarfile.SYMTYPE, linkname=target)


def archive(file: Path, entries: Iterable[tuple[tarfile.TarInfo, bytes]], *, config: bool = True) -> Path:
    """An archive of these entries; with a config.json at its root unless told."""
    first = [entry("config.json", CONFIG.encode())] if config else []
    with tarfile.open(file, "w:gz") as tar:
        for info, content in [*first, *entries]:
            tar.addfile(info, io.BytesIO(content))
    return file


def compressed(file: Path, plain: bytes) -> Path:
    file.write_bytes(gzip.compress(plain, 1))
    return file
