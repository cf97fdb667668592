"""What `deployConfig.secondPart` means: a second part made at its first use, of the host's own system or built.

Not here: the second part of an image that a request names (`datasources.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import Project
from ..engines.base import Later
from ..errors import InvalidRequest

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def later(project: Project, variables: Mapping[str, str], data: Path | None) -> Later | str:
    """The second part that the environment asks for; empty when it asks for none.

    Of Dockerfiles the first that exists below the folder `data`; where none does, it is the host's own system.
    InvalidRequest for a variable that is no name of a file or folder.
    """
    match project.deploy.get("secondPart"):
        case None:
            return ""
        case "host":
            return Later()
        case {"dockerfile": list(templates)} if templates and all(map(_is_template, templates)):
            found = (_file(template, variables, data) for template in templates) if data else ()
            return Later(next(filter(None, found), None))
    raise InvalidRequest(
        f"deployConfig.secondPart of environment '{project.ref}' must be \"host\", "
        'or {"dockerfile": ["{NAME}/Dockerfile"]} with paths below the data folder'
    )


def _is_template(template: Any) -> bool:
    return isinstance(template, str) and bool(template) and not {"", "..", "."} & {*template.split("/")}


def _file(template: str, variables: Mapping[str, str], data: Path) -> Path | None:
    """The file that a template names, if it lies below the data folder, wherever links lead."""
    names = _NAME.findall(template)
    if not all(variables.get(name) for name in names):
        return None
    for name in names:
        if "/" in variables[name] or "\0" in variables[name] or variables[name] in (".", ".."):
            raise InvalidRequest(
                f"variable {name!r} is to be the name of one file or folder of the data, without '/' and not '..'"
            )
    path = _NAME.sub(lambda match: variables[match[1]], template)
    try:
        top = data.resolve(strict=True)
        file = (top / path).resolve(strict=True)
    except (OSError, RuntimeError):  # not there; a loop of links
        return None
    return file if file.is_relative_to(top) and file.is_file() else None
