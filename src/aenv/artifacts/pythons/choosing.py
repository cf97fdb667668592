"""Which Python the instances of an environment run on: chosen when the first of them is made ready.

An environment that asks for nothing, or for the Python that runs aenv, has that one, and nothing is looked for.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...base.config import Project
from ...base.errors import InvalidRequest, StartFailed
from .. import requirements
from .interpreters import Search, find
from .runtimes import Python, runtime
from .wanted import OLDEST, Minor, WantedPython, spelled, wanted

Clock = Callable[[], float]
_LOOK_AGAIN = 600.0  # seconds: an operator may have installed what was missing
_LONGEST = 300.0  # seconds: a create waits, and can do without
_MAX_WORDS = 400  # characters of what uv says in one line
_OWN = f"{spelled(sys.version_info[:2])}, which runs aenv"


@dataclass(frozen=True)
class Choice:
    """The Python of an environment."""

    python: Python | None = None
    """None for the one that runs aenv."""
    words: str = _OWN
    """For people: its version, and why."""
    problem: str = ""
    """Why it is not the one that is asked for, and what to do, in one line."""
    until: float = math.inf
    """When to look again, by the clock of who chose."""

    @property
    def target(self) -> requirements.Target:
        """What its packages are installed for."""
        return self.python or requirements.OWN


_OURS = Choice()


class Pythons:
    """The choices for environments on this host; `variables` say where to look, `home` keeps what is made."""

    def __init__(self, home: Path, variables: Mapping[str, str], clock: Clock = time.monotonic) -> None:
        self._home, self._variables, self._now = home, variables, clock
        self._chosen: dict[Path, Choice] = {}
        """By the folder of the project, which is another one for another version."""
        self._choosing: dict[tuple[Minor, ...], asyncio.Lock] = {}

    async def choose(self, project: Project, on_line: requirements.OnLine | None = None) -> Choice:
        """The Python for a project; what it needs is made when it is missing. `on_line` gets what uv says."""
        if choice := self._known(project.path):
            return choice
        try:
            asked = await asyncio.to_thread(wanted, project.path, project.build.dockerfile)
        except InvalidRequest as error:
            choice = self._without(error.message)
        else:
            choice = await self._chosen_for(project, asked, on_line) if asked and not asked.is_ours else _OURS
        self._chosen[project.path] = choice
        return choice

    async def _chosen_for(
        self, project: Project, asked: WantedPython, on_line: requirements.OnLine | None
    ) -> Choice:
        async with self._choosing.setdefault(asked.minors, asyncio.Lock()):
            return self._known(project.path) or await self._look(asked, on_line)

    def _known(self, folder: Path) -> Choice | None:
        choice = self._chosen.get(folder)
        if choice is None or choice is _OURS:
            return choice
        if choice.python:  # another process may have removed it; and this marks it as used
            return choice if requirements.use(choice.python.folders[0]) else None
        return choice if self._now() < choice.until else None

    async def _look(self, asked: WantedPython, on_line: requirements.OnLine | None) -> Choice:
        search = await asyncio.to_thread(find, asked, self._variables, self._home.expanduser().absolute())
        if search.found is None:
            return self._without(f"{asked.words}, {_missing(asked, search)}")
        try:
            async with asyncio.timeout(_LONGEST):
                python = await runtime(search.found, self._home, on_line)
        except (StartFailed, OSError) as error:  # which a timeout is, too, and says nothing
            why = " ".join(str(error).split())[:_MAX_WORDS] or f"that took longer than {_LONGEST:g} s"
            return self._without(f"{asked.words}, and {search.found.executable} cannot be prepared for it: {why}")
        return Choice(python, f"{search.found.version}: {asked.words}")

    def _without(self, why: str) -> Choice:
        problem = f"{why}; its instances run on Python {_OWN}"
        return Choice(problem=problem, until=self._now() + _LOOK_AGAIN)


async def requirements_of_project(
    project: Project, home: Path, variables: Mapping[str, str], on_line: requirements.OnLine
) -> tuple[requirements.Target, Path | None]:
    """The Python that an author's own project gets on this machine, and the folder with what it requires."""
    target = (await Pythons(home, variables).choose(project, on_line)).target
    return target, await requirements.folder_for(project.path / "requirements.txt", home, on_line, target=target)


def note_on_our_own(project: Project) -> str:
    """That a project is about to run on our own Python, where it asks for another; empty when it does not."""
    try:
        asked = wanted(project.path, project.build.dockerfile)
    except InvalidRequest as error:
        return error.message
    if asked is None or asked.is_ours:
        return ""
    return f"{asked.words}; it runs here on Python {_OWN}; instances get the other one where their host has it"


def _missing(asked: WantedPython, search: Search) -> str:
    """Why there is none, and what to do."""
    if not asked.usable:
        return f"and aenv needs {spelled(OLDEST)} or newer"
    if search.refused:
        return f"and what this host has is not used ({'; '.join(search.refused)})"
    bring = f"uv python install {spelled(asked.usable[-1])}"
    return f"which this host does not have ('{bring}' brings it, as the user who runs the gateway)"
