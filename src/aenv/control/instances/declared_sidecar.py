"""What `deployConfig.sidecar` means: a sidecar made at its first use, of the host's own system or built.

Not here: the sidecar of an image that a request names (`datasources.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ...base.config import Project, SidecarSource
from ...base.errors import InvalidRequest
from ...base.paths import below
from ...engines.base import LazySidecar
from .installs import packages

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def lazy_sidecar(project: Project, variables: Mapping[str, str], data: Path | None) -> LazySidecar | str:
    """The sidecar that the environment asks for; empty when it asks for none.

    Of Dockerfiles the first that exists below the folder `data`; where none does, it is the host's own system.
    InvalidRequest for a variable that is not the name of a file or folder.
    """
    source = project.deploy.sidecar
    if source is None:
        return ""
    found = (_file(template, variables, data) for template in source.dockerfiles) if data else ()
    dockerfile = next(filter(None, found), None)
    return (
        LazySidecar(dockerfile, _requirements(source, variables, data)) if dockerfile and data else LazySidecar()
    )


def _requirements(source: SidecarSource, variables: Mapping[str, str], data: Path) -> tuple[str, ...]:
    """What the environment asks for, and what the first of the installers that exists would install."""
    found = list(source.requirements)
    scripts = (_file(template, variables, data) for template in source.installers)
    if script := next(filter(None, scripts), None):
        folders = [script.parent, *(folder for folder in (script.parent / "tests",) if folder.is_dir())]

        def find_file(name: str) -> str | None:
            files = (_below(data, folder / name) for folder in folders) if name else ()
            return next((_read(file) for file in files if file), None)

        found += packages(_read(script), find_file)
    return tuple(dict.fromkeys(found))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidRequest(f"{file.name!r} of the data cannot be read: {error.strerror or error}") from None


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
    return _below(data, _NAME.sub(lambda match: variables[match[1]], template))


def _below(data: Path, path: str | Path) -> Path | None:
    file = below(data, path)
    return file if file and file.is_file() else None
