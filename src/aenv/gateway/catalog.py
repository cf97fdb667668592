"""The environments that this gateway can start: project folders, read once when it starts."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from pathlib import Path

from .. import refs
from ..config import Project, load_project
from ..errors import AEnvError, NotFound
from ..refs import Ref

logger = logging.getLogger("aenv.gateway.catalog")


class Catalog:
    """Projects by name and version."""

    def __init__(self, projects: Iterable[Project] = ()) -> None:
        self._projects: dict[str, dict[str, Project]] = {}
        for project in projects:
            self._add(project)

    def find(self, ref: Ref) -> Project:
        """The project that `ref` names; for a name alone, its latest version."""
        versions = self._projects.get(ref.name, {})
        project = versions.get(ref.version or refs.latest(versions) or "")
        if project is None:
            raise NotFound(f"no environment {str(ref)!r}; {self._known(ref)}")
        return project

    def _add(self, project: Project) -> None:
        first = self._projects.setdefault(project.name, {}).setdefault(project.version, project)
        if first is not project:
            logger.warning("left out %s: %s is registered from %s", project.path, project.ref, first.path)

    def _known(self, ref: Ref) -> str:
        names = [ref.name] if ref.name in self._projects else difflib.get_close_matches(ref.name, self._projects)
        known = [f"{name}@{version}" for name in names or self._projects for version in self._projects[name]]
        if not known:
            return "none is registered; start the gateway with a project folder"
        return f"this gateway has {', '.join(sorted(known)[:10])}"


def read(named: Iterable[Path], home: Path) -> Catalog:
    """The projects that were named, which must be sound, and those below `<home>/envs` that are."""
    projects = [load_project(path) for path in named]
    for path in sorted((home / "envs").glob("*/")):
        try:
            projects.append(load_project(path))
        except AEnvError as error:
            logger.warning("left out %s: %s", path, error)
    return Catalog(projects)
