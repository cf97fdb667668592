"""Bases that others keep, and what they give: the host's own system stands for them, and must give the same.

Not here: the layers of the host's own system (`host_rootfs.py`, `host_layers.py`).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path

from ...base.errors import StartFailed
from . import folder_cache
from .build_steps import BuildState, BuildSteps
from .copying import Item, Owner
from .dockerfile import Instruction
from .host_rootfs import HostEntry, layer
from .images import OnLine
from .merged_view import MergedView
from .references import canonical

# Bases whose programs a usual host has, also as others keep them, "team/ubuntu-24-04"; an author who needs the
# very image loads it.
_LIKE_HOST = re.compile(
    r"(?P<own>python|debian|ubuntu|aenvironment/[\w.-]+|(?:[\w.:-]+/)+(?P<others>python|debian|ubuntu)-\d[\w.-]*)[:@]"
)
_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_PYTHON = {"python3": "python3", "pip3": "python3-pip"}
_LINKS = {"python": "python3", "pip": "pip3"}
_TERMINAL = {"tmux": "tmux", "asciinema": "asciinema"}
_WITH_PIP = ("python3-dev", "python3-venv")  # what has no program of its own: headers, and environments


@dataclass(frozen=True)
class Base:
    """What a base gives besides a shell and the usual programs."""

    reference: str
    programs: tuple[tuple[str, str], ...] = ()
    """By name, with the package that brings it."""
    links: tuple[tuple[str, str], ...] = ()
    """Further names, with the program that they stand for."""
    folder: str = "/"
    """Its WORKDIR."""
    is_whole: bool = False
    """Whether all of it must be there; else what the host's own system lacks is noted."""


def base(reference: str) -> Base | None:
    """What a reference gives that the host's own system can stand for; None for any other."""
    name = canonical(reference)
    match = _LIKE_HOST.match(name)
    if match is None:
        return None
    is_python = "python" in (match["own"], match["others"])
    is_terminal = "/t-bench/" in f"/{name}"  # those of Terminal-Bench
    programs = {**(_PYTHON if is_python else {}), **(_TERMINAL if is_terminal else {})}
    links = _LINKS if is_python else {}
    folder = "/app" if is_terminal else "/"
    return Base(reference, tuple(programs.items()), tuple(links.items()), folder, is_terminal)


async def provide(wanted: Base, state: BuildState, steps: BuildSteps, on_line: OnLine) -> None:
    """Add what a base gives and the root below lacks. StartFailed names the packages to install on the host."""
    lacking = sorted({package for program, package in wanted.programs if not _has(state, program)})
    is_host = "/usr" in state.root.system
    if lacking and (wanted.is_whole or not is_host):
        if "python3-pip" in lacking:
            lacking.extend(_WITH_PIP)
        on_line(f"{wanted.reference} has {', '.join(lacking)}: installing that over the system that stands for it")
        await _install(wanted, lacking, state, steps, on_line)
    elif lacking:
        state.notes.append(
            f"{wanted.reference} has {', '.join(lacking)}, and the system that stands for it has not"
        )
    found = ((name, _has(state, program)) for name, program in wanted.links if not _has(state, name))
    if links := {name: place for name, place in found if place}:
        await asyncio.to_thread(_link, links, state, steps.home)
    if wanted.folder != "/":
        state.folder = wanted.folder
        if not MergedView(state.root).is_folder(wanted.folder):
            await steps.put(state, [Item(wanted.folder)], Owner())


async def _install(
    wanted: Base, packages: list[str], state: BuildState, steps: BuildSteps, on_line: OnLine
) -> None:
    words = " ".join(packages)
    script = f"apt-get update -q && apt-get install -q -y --no-install-recommends {words}"
    arguments = dict(state.arguments)
    state.arguments["DEBIAN_FRONTEND"] = "noninteractive"
    try:
        await steps.run(state, Instruction(0, "RUN", ""), ("/bin/sh", "-c", script), on_line)
    except StartFailed as error:
        raise StartFailed(
            f"{wanted.reference} has {', '.join(packages)}, and the system that stands for it has not; "
            f"install that there with: apt-get install {words}\n{error.message.partition('; ')[2]}"
        ) from None
    finally:
        state.arguments = arguments


def _link(links: dict[str, str], state: BuildState, home: Path) -> None:
    """Lay the links over the root, in a layer of their own."""
    tree = "/usr" if "/usr" in state.root.system else ""
    within = "local/bin" if tree else "usr/local/bin"
    entries = {f"{within}/{name}": HostEntry(0o777, target) for name, target in links.items()}
    place = layer(home, "links", [within, *map(str, sorted(links.items()))], lambda: entries)
    root = state.root
    if tree:
        state.root = replace(root, system={**root.system, tree: (place, *root.system[tree])})
    else:
        state.root = replace(root, layers=(place, *root.layers))
    state.key = folder_cache.digest([state.key, place.name])


def _has(state: BuildState, program: str) -> str:
    """Where a program is in the root; empty when it is nowhere."""
    view = MergedView(state.root)
    paths = (f"{folder}/{program}" for folder in _PATH)
    return next((path for path in paths if (found := view.find(view.resolve(path))) and found.is_file()), "")
