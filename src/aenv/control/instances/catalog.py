"""The environments that this gateway can start: project folders, what the hub has published, and built-in ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ...artifacts import requirements
from ...artifacts.data.builtin import Folders, by_name, sound
from ...artifacts.pythons.choosing import Choice, Pythons
from ...artifacts.pythons.runtimes import Python
from ...base import refs, settings
from ...base.config import Project, UsedEnvironment, load_project, parse_deploy
from ...base.config.sections import ConfigText
from ...base.errors import InvalidRequest, NotFound
from ...base.refs import Ref
from ..hub.checkouts import Checkouts
from ..hub.environment_records import EnvironmentRecord
from ..hub.hub_routes import HubRoutes
from ..serving import job_steps
from ..serving.accounts import Caller

logger = logging.getLogger("aenv.control.instances.catalog")

_KNOWN = 0.1  # seconds for which that holds: many instances are made at the same time
_MAX_PREPARED = 1000
_UNUSED = 30 * 86400.0  # seconds for which code and packages that are not used are kept


@dataclass(frozen=True)
class PreparedProject:
    """What a project's instances need besides its code."""

    python: Python | None
    requirements: Path | None
    """The packages that it requires; None when it requires none."""

    @property
    def runtime(self) -> str:
        """The name of the folder of its Python's runtime; empty when that is our own."""
        return self.python.folders[0].name if self.python else ""


@dataclass(frozen=True)
class _Known:
    """What a project was found to need, and when."""

    at: float
    project: Project
    prepared: PreparedProject


class Catalog:
    """Finds projects by name and version: among the folders, in the hub, and then among the built-in ones."""

    def __init__(
        self, folders: Folders, hub: HubRoutes, checkouts: Checkouts, home: Path, built_in: Folders | None = None
    ) -> None:
        self._folders = folders
        self._built_in = built_in or {}
        known = (*folders.values(), *self._built_in.values())
        self._trusted = {project.path for versions in known for project in versions.values()}
        self._hub = hub
        self._checkouts = checkouts
        self._home = home
        self._pythons = Pythons(home, settings.variables())
        self._told: set[tuple[Path, str]] = set()
        """Of which projects the log has said what is wrong with their Python."""
        self._prepared: dict[Path, _Known] = {}
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
        return _as_published(load_project(folder, is_published=True), published)

    async def python(self, project: Project) -> Choice:
        """The Python that a project's instances run on, made ready once."""
        choice = await self._pythons.choose(project, _telling("preparing the Python that is asked for"))
        if choice.problem and (project.path, choice.problem) not in self._told:
            self._told.add((project.path, choice.problem))
            logger.warning("%s: %s", project.ref, choice.problem)
        if choice.python:
            job_steps.at("")
            self._handed_out.add(choice.python.folders[0].name)
        return choice

    async def prepare(self, project: Project) -> PreparedProject:
        """The Python of a project's instances, and the packages that it requires: each made ready once."""
        known = self._prepared.get(project.path)
        if known and time.monotonic() - known.at < _KNOWN and known.project == project:
            return known.prepared
        trusted = project.path in self._trusted
        choice = await self.python(project)
        file, tell = project.path / "requirements.txt", _telling("installing requirements")
        folder = await requirements.folder_for(file, self._home, tell, trusted=trusted, target=choice.target)
        job_steps.at("")
        if folder:
            self._handed_out.add(folder.name)
        prepared = PreparedProject(choice.python, folder)
        if len(self._prepared) >= _MAX_PREPARED:
            self._prepared.clear()
        self._prepared[project.path] = _Known(time.monotonic(), project, prepared)
        return prepared

    async def collect(self, keep: Collection[str]) -> None:
        """Remove code and packages that were not used for long, except what instances run now."""
        in_use = {*keep, *self._handed_out}
        await self._hub.collect()
        await self._checkouts.collect(_UNUSED, in_use)
        await asyncio.to_thread(requirements.collect, self._home, in_use, _UNUSED)


def _telling(what: str) -> requirements.OnLine:
    """Tells those who wait what is done, with the last line that uv said."""
    return lambda line: job_steps.at(f"{what}: {line.strip()}")


def _as_published(project: Project, published: EnvironmentRecord) -> Project:
    """The code of a bundle, with what its record says: that may have been changed since it was pushed."""
    try:
        deploy = parse_deploy(published.deploy_config or {}, ConfigText(is_published=True))
    except InvalidRequest as error:
        raise InvalidRequest(f"environment '{published.ref}' cannot be started: {error.message}") from None
    return replace(
        project,
        deploy=deploy,
        artifacts=published.artifacts,
        uses=_taken(project, published),
        is_published=True,
        owner=published.policy.owner if published.policy else None,
        pushed_by=published.pushed_by,
    )


def _taken(project: Project, published: EnvironmentRecord) -> tuple[UsedEnvironment, ...]:
    """The parts of a composed environment, each in the version that the push took, if a push took any."""
    if not published.parts:  # pushed before hubs looked at `uses`
        return project.uses
    pins = (refs.parse(pin) for pin in published.parts)
    return tuple(replace(part, environment=pin) for part, pin in zip(project.uses, pins, strict=True))


def read_folders(named: Iterable[Path], home: Path) -> Folders:
    """The projects that were named, which must be sound, and those below `<home>/envs` that are."""
    return by_name([*(load_project(path) for path in named), *sound(sorted((home / "envs").glob("*/")))])
