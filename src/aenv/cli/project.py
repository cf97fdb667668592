"""The project that a command is about; a config.json that is wrong ends the command with exit code 3."""

from __future__ import annotations

from pathlib import Path

from .. import config
from ..errors import InvalidRequest
from . import output


def load(folder: Path) -> config.Project:
    """The project in `folder`."""
    try:
        return config.load_project(folder)
    except InvalidRequest as error:
        raise output.Failure(error.message, exit_code=3) from error


def around(path: Path) -> config.Project | None:
    """The project that `path` is, or is the `src` of, or is a file of; None where there is no config.json."""
    folder = path if path.is_dir() else path.parent
    homes = [folder, folder.parent] if folder.name == "src" else [folder]
    found = next((home for home in homes if (home / config.FILE_NAME).is_file()), None)
    return load(found) if found else None
