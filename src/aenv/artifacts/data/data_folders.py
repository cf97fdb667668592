"""Where this machine has the data that an environment declares in its config.json."""

from __future__ import annotations

from pathlib import Path

from ...base import settings
from ...base.config import Data
from ...base.errors import InvalidRequest
from .builtin import built_in


def on_host(data: Data, home: Path) -> Path | None:
    """The folder that this process's own variable names, else the one that `aenv data pull` has made, if any."""
    return named_here(data.variable) or fetched(data.name, home)


def fetched(name: str, home: Path) -> Path | None:
    """The folder that `aenv data pull` has made, if any."""
    folder = home.expanduser() / "data" / name
    return folder.resolve() if folder.is_dir() else None


def named_here(variable: str) -> Path | None:
    """The folder that this process's own variable names, if it is set."""
    named = settings.variables().get(variable)
    return checked(Path(named), variable) if named else None


def is_named_here(variable: str) -> bool:
    """Whether this process's own variable is set."""
    return bool(settings.variables().get(variable))


def checked(folder: Path, variable: str) -> Path:
    """A folder that the operator has named by a variable; InvalidRequest when it is none."""
    folder = folder.expanduser()
    if not folder.is_dir():  # no path: this may be said to a client that must not know it
        raise InvalidRequest(f"what {variable} names on this machine is not a folder; correct it, or unset it")
    return folder.resolve()


def of_built_in(name: str) -> dict[str, str]:
    """This process's own variables that tell where the data of a built-in environment is, for others to find."""
    ours = {
        key: folder
        for key, folder in settings.variables().items()
        if key.endswith(("_DATA_DIR", "_GIT_DIR")) and folder
    }
    versions = built_in().get(name, {}).values() if ours else ()  # nothing is read where nothing is set
    asked = {key for project in versions if project.data for key in (project.data.variable, *project.data.folders)}
    return {key: str(Path(ours[key]).expanduser().absolute()) for key in asked & ours.keys()}
