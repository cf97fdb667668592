"""Limits of groups of processes, by cgroups: version 1, version 2, both at once, or none.

A group is a folder `aenv/<name>` in each hierarchy that enforces something. Not here: what a group does
(`control_group.py`), where its folders may be (`mounted.py`), how moves get faster on a host (`cgroup_moves.py`).
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...base.errors import Conflict, InvalidRequest, NotFound
from . import owners
from .control_files import Hierarchy, Limits
from .control_group import ControlGroup
from .mounted import WANTED, ParentGroup, dismantle, look, prepare, search, thaw_old

SPARES = 8  # made ahead, for each of the last KINDS limits
KINDS = 4

_NAME = re.compile(r"[a-z0-9-]{1,200}\Z")  # a spare has dots in its name, so that no group can be taken for one


def find(name: str = "aenv", *, proc: Path = Path("/proc/self")) -> Cgroups:
    """The cgroups that we may use here, ready for `make`. May move this process to a leaf below its own cgroup."""
    _checked(name)
    places = look(name, proc=proc)
    missing = dict(places.missing)
    enforcing = []
    for place in places.enforcing:
        failed = prepare(place, name)
        missing |= failed
        if kept := tuple(controller for controller in place.controllers if controller not in failed):
            enforcing.append(replace(place, controllers=kept))
    freezer = next((place for place in enforcing if places.freezer and place.base == places.freezer.base), None)
    if freezer is None and places.freezer is not None:
        freezer = replace(places.freezer, controllers=())
        if why := prepare(freezer, name).get("freezer"):
            freezer, missing["freezer"] = None, why
    found = Cgroups(name, enforcing, freezer, missing)
    found.sweep()
    with suppress(OSError):  # not ours to change, or another one does it, too
        thaw_old(name, proc=proc)
    return found


class Cgroups:
    """Makes groups, and finds them again. Give back what it holds with `close`."""

    def __init__(
        self, name: str, enforcing: list[ParentGroup], freezer: ParentGroup | None, missing: Mapping[str, str]
    ) -> None:
        self.name = name
        self.missing = missing
        held = {controller for place in enforcing for controller in place.controllers}
        self.enforced = tuple(kind for kind in WANTED if kind in held) + (("freezer",) if freezer else ())
        self._places = [*enforcing, *([freezer] if freezer and freezer not in enforcing else [])]
        self._enforcing = [_hierarchy(place, name) for place in enforcing]
        self._freezer = _hierarchy(freezer, name) if freezer else None
        self._spares: dict[Limits, deque[str]] = {}
        self._spare = f"spare.{owners.own()}.{secrets.token_hex(4)}."
        self._made = 0
        self._changing = threading.Lock()

    def make(self, name: str, *, cpus: float | None, memory_bytes: int | None, pids: int | None) -> ControlGroup:
        """A new group with these limits. On failure nothing is left. Raises Conflict, or OSError of the kernel."""
        _checked(name)
        limits = (cpus, memory_bytes, pids)
        try:
            return self._make(name, limits)
        except FileNotFoundError:
            # Another process that used the same folders has closed, and there was no group in them.
            for place in self._places:
                prepare(place, self.name)
            return self._make(name, limits)

    def _make(self, name: str, limits: Limits) -> ControlGroup:
        spare = self._take(limits)
        made: list[str] = []
        try:
            for hierarchy in self._enforcing:
                folder = hierarchy.parent + name
                if not (spare and hierarchy.version == 1 and _renamed(hierarchy.parent + spare, folder)):
                    os.mkdir(folder)
                    made.append(folder)
                    hierarchy.limit(folder, limits)
                else:
                    made.append(folder)
        except BaseException as error:
            for folder in made:
                os.rmdir(folder)
            if spare:
                self._discard(spare)
            if isinstance(error, FileExistsError):
                raise Conflict(f"a cgroup {name!r} exists already in {self.name!r}; remove it first") from None
            raise
        return ControlGroup(name, self._enforcing, self._freezer)

    def group(self, id: str) -> ControlGroup:
        """A group that was made before, perhaps by another process, in another cgroup. Raises NotFound."""
        _checked(id)
        strange: dict[str, str] = {}
        is_found = not self._enforcing
        for place in self._places:
            folder = place.parent(self.name) + f"/{id}"
            if os.path.isdir(folder):
                is_found = True
            elif found := search(place, self.name, id):
                is_found, strange[folder] = True, found
        if not is_found:
            raise NotFound(f"no cgroup {id!r} in {self.name!r}")
        return ControlGroup(id, self._enforcing, self._freezer, strange)

    def leftovers(self) -> list[str]:
        """The names of all groups that exist."""
        return sorted(name for name in self._listed() if _NAME.match(name))

    def refill(self, count: int = SPARES) -> int:
        """Make folders ahead for the limits that were asked for last; returns how many. For the background.

        Version 1 only: there a folder can be renamed, which costs a tenth of making one and setting its limits.
        """
        made = 0
        old = [hierarchy for hierarchy in self._enforcing if hierarchy.version == 1]
        with self._changing:
            for limits, spares in self._spares.items() if old else ():
                while len(spares) < count:
                    self._made += 1
                    spare = f"{self._spare}{self._made}"
                    try:
                        for hierarchy in old:
                            os.mkdir(hierarchy.parent + spare)
                            hierarchy.limit(hierarchy.parent + spare, limits)
                    except BaseException:
                        self._discard(spare)
                        raise
                    spares.append(spare)
                    made += 1
        return made

    def sweep(self) -> int:
        """Remove what processes that have ended had made ahead; returns how many."""
        spares = [name for name in self._listed() if name.startswith("spare.")]
        dead = [name for name in spares if not owners.runs(name.split(".")[1])]
        for name in dead:
            self._discard(name)
        return len(dead)

    def close(self) -> None:
        """Remove what was made ahead, and the folders of all groups unless some are left."""
        with self._changing:
            for spares in self._spares.values():
                while spares:
                    self._discard(spares.popleft())
            self._spares.clear()
        for place in self._places:
            dismantle(place, self.name)

    def _take(self, limits: Limits) -> str | None:
        """A spare with these limits. Limits that are new are wanted from now on; the oldest give way."""
        spares = self._spares.get(limits)
        if spares is None:
            with self._changing:
                self._spares.setdefault(limits, deque())
                while len(self._spares) > KINDS:
                    for spare in self._spares.pop(next(iter(self._spares))):
                        self._discard(spare)
            return None
        try:
            return spares.popleft()  # not asked before: another thread may take the last one
        except IndexError:
            return None

    def _discard(self, spare: str) -> None:
        for hierarchy in self._enforcing:
            with suppress(FileNotFoundError):  # version 2 has none, and one that failed is not everywhere
                os.rmdir(hierarchy.parent + spare)

    def _listed(self) -> set[str]:
        names: set[str] = set()
        for place in self._places:
            with suppress(FileNotFoundError):  # closed
                names |= {entry.name for entry in os.scandir(place.parent(self.name)) if entry.is_dir()}
        return names


def _hierarchy(place: ParentGroup, name: str) -> Hierarchy:
    return Hierarchy(place.version, place.controllers, place.parent(name))


def _renamed(spare: str, folder: str) -> bool:
    try:
        os.rename(spare, folder)
        return True
    except FileNotFoundError:
        return False  # swept by a process that does not see ours


def _checked(name: str) -> None:
    if not _NAME.match(name):
        raise InvalidRequest(f"bad name of a cgroup {name!r}; it has only small letters, digits and '-'")
