"""Where this machine has the data that an environment declares in its config.json."""

from __future__ import annotations

from pathlib import Path

from .. import settings
from ..config import Data
from ..errors import InvalidRequest
from .builtin import built_in


def on_host(data: Data, home: Path) -> Path | None:
    """The folder that this process's own variable names, else the one that `aenv data pull` has made, if any."""
    pulled = home.expanduser() / "data" / data.name
    return named_here(data.variable) or (pulled.resolve() if pulled.is_dir() else None)


def named_here(variable: str) -> Path | None:
    """The folder that this process's own variable names, if it is set."""
    named = settings.variables().get(variable)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():  # no path: this may be said to somebody who must not know it
        raise InvalidRequest(f"what {variable} names on this machine is no folder; mend it, or unset it")
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
