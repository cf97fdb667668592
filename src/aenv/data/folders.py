"""Where this machine has the data that an environment declares in its config.json."""

from __future__ import annotations

from pathlib import Path

from .. import settings
from ..config import Data
from ..errors import InvalidRequest
from .builtin import built_in


def on_host(data: Data, home: Path) -> Path | None:
    """The folder that this process's own variable names, else the one that `aenv data pull` has made, if any."""
    named = settings.variables().get(data.variable)
    folder = Path(named).expanduser() if named else home.expanduser() / "data" / data.name
    if folder.is_dir():
        return folder.resolve()
    if named:  # no path: this may be said to somebody who must not know it
        raise InvalidRequest(f"what {data.variable} names on this machine is no folder; mend it, or unset it")
    return None


def of_built_in(name: str) -> dict[str, str]:
    """This process's own variables that tell where the data of a built-in environment is, for others to find."""
    ours = {key: folder for key, folder in settings.variables().items() if key.endswith("_DATA_DIR") and folder}
    versions = built_in().get(name, {}).values() if ours else ()  # nothing is read where nothing is set
    asked = {project.data.variable for project in versions if project.data}
    return {key: str(Path(ours[key]).expanduser().absolute()) for key in asked & ours.keys()}
