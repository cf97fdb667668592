"""The environments that this gateway can start: project folders, what the hub has published, and built-in ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from .. import layers
from ..config import Project, check_deploy, load_project
from ..data.builtin import Folders, by_name, sound
from ..errors import InvalidRequest, NotFound
from ..hub.checkouts import Checkouts
from ..hub.records import Environment
from ..hub.routes import Hub
from ..refs import Ref
from ..serving.accounts import Caller

_UNUSED = 30 * 86400.0  # seconds for which code and packages that nobody starts are kept


class Catalog:
    """Finds projects by name and version: among the folders, in the hub, and then among the built-in ones."""

    def __init__(
        self, folders: Folders, hub: Hub, checkouts: Checkouts, home: Path, built_in: Folders | None = None
    ) -> None:
        self._folders = folders
        self._built_in = built_in or {}
        known = (*folders.values(), *self._built_in.values())
        self._trusted = {project.path for versions in known for project in versions.values()}
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
        if published.policy is None:
            return self._built_in[published.name][published.version]
        if not published.digest:
            raise NotFound(f"environment '{published.ref}' not found here: it has no code yet; use 'aenv push'")
        folder = await self._checkouts.folder(published.digest)
        self._handed_out.add(folder.name)
        return _as_published(load_project(folder), published)

    async def layer(self, project: Project) -> Path | None:
        """The packages that a project requires, installed once; None when it requires none."""
        trusted = project.path in self._trusted
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
    return by_name([*(load_project(path) for path in named), *sound(sorted((home / "envs").glob("*/")))])
