"""Projects in folders, by name and version: those that come with this package, and those of a machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from ...base.config import FILE_NAME, Project, load_project
from ...base.errors import AEnvError

logger = logging.getLogger("aenv.artifacts.data.builtin")

Folders = Mapping[str, Mapping[str, Project]]
"""Projects by name and version; one with aliases is there under each of them too, called so."""

_FOLDER = Path(__file__).parents[2] / "envs"


@cache  # they do not change while the package is installed
def built_in(folder: Path = _FOLDER) -> Folders:
    """The environments that come with this package. One that is broken is left out, with a warning."""
    return by_name(sound(sorted(file.parent for file in folder.glob(f"*/{FILE_NAME}"))))


def sound(folders: Iterable[Path]) -> list[Project]:
    """The projects in these folders; what cannot be read is left out, with a warning."""
    projects = []
    for path in folders:
        try:
            projects.append(load_project(path))
        except AEnvError as error:
            logger.warning("left out %s: %s", path, error)
    return projects


def by_name(projects: Iterable[Project]) -> Folders:
    """The first of a name and version counts, and a name of its own before an alias of another."""
    projects = list(projects)
    folders: dict[str, dict[str, Project]] = {}
    for project in projects:
        first = folders.setdefault(project.name, {}).setdefault(project.version, project)
        if first is not project:
            logger.warning("left out %s: %s is registered from %s", project.path, project.ref, first.path)
    for project in projects:
        for alias in project.aliases:
            version = alias.version or ""
            known = replace(project, name=alias.name, version=version)
            folders.setdefault(alias.name, {}).setdefault(version, known)
    return folders
