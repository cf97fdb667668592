"""The environments that this gateway can start: project folders, and what the hub has published."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from .. import layers
from ..config import Project, check_deploy, load_project
from ..errors import AEnvError, InvalidRequest, NotFound
from ..hub.checkouts import Checkouts
from ..hub.records import Environment
from ..hub.routes import Hub
from ..refs import Ref
from ..serving.accounts import Caller

logger = logging.getLogger("aenv.instances.catalog")

Folders = Mapping[str, Mapping[str, Project]]

_UNUSED = 30 * 86400.0  # seconds for which code and packages that nobody starts are kept


class Catalog:
    """Finds projects by name and version: first among the folders, then in the hub."""

    def __init__(self, folders: Folders, hub: Hub, checkouts: Checkouts, home: Path) -> None:
        self._folders = folders
        self._hub = hub
        self._checkouts = checkouts
        self._home = home
        self._handed_out: set[str] = set()
        """The folders of code and packages that this process has given to instances or replicas."""

    async def find(self, ref: Ref, caller: Caller) -> Project:
        """The project that `ref` names; for a name alone its latest version, for a range the latest in it.

        One that the caller may not see is NotFound, like one that does not exist.
        """
        folders = self._folders.get(ref.name, {})
        version = ref.pick(folders)
        if version is not None:
            return folders[version]
        published = await self._hub.find(ref, caller)
        if not published.digest:
            raise NotFound(f"environment '{published.ref}' not found here: it has no code yet; use 'aenv push'")
        folder = await self._checkouts.folder(published.digest)
        self._handed_out.add(folder.name)
        return _as_published(load_project(folder), published)

    async def layer(self, project: Project) -> Path | None:
        """The packages that a project requires, installed once; None when it requires none."""
        trusted = project in self._folders.get(project.name, {}).values()
        layer = await layers.layer_for(project.path / "requirements.txt", self._home, trusted=trusted)
        if layer:
            self._handed_out.add(layer.name)
        return layer

    async def collect(self, keep: Collection[str]) -> None:
        """Remove code and packages that nobody has started for long, except what instances run now."""
        in_use = {*keep, *self._handed_out}
        await self._hub.collect()
        await self._checkouts.collect(_UNUSED, in_use)
        await asyncio.to_thread(layers.collect, self._home, in_use, _UNUSED)


def _as_published(project: Project, published: Environment) -> Project:
    """The code of a bundle, with what its record says: that may have been changed since it was pushed."""
    deploy = published.deploy_config or {}
    try:
        check_deploy(deploy)
    except InvalidRequest as error:
        raise InvalidRequest(f"environment '{published.ref}' cannot be started: {error.message}") from None
    return replace(project, deploy=deploy, artifacts=published.artifacts)


def read_folders(named: Iterable[Path], home: Path) -> Folders:
    """The projects that were named, which must be sound, and those below `<home>/envs` that are."""
    projects = [load_project(path) for path in named]
    for path in sorted((home / "envs").glob("*/")):
        try:
            projects.append(load_project(path))
        except AEnvError as error:
            logger.warning("left out %s: %s", path, error)
    folders: dict[str, dict[str, Project]] = {}
    for project in projects:
        first = folders.setdefault(project.name, {}).setdefault(project.version, project)
        if first is not project:
            logger.warning("left out %s: %s is registered from %s", project.path, project.ref, first.path)
    return folders
