"""Steps: the layers that a Dockerfile's instructions leave, each made once.

A step is `<home>/roots/steps/<key>`, with a folder for each tree of the root: "root", and "usr" on the host root.
The key chains what is below, the instruction, and the content of what it copies.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import stat
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

from ...base.errors import InvalidRequest, StartFailed
from ..sandbox.removal import remove
from ..sandbox.rootfs import Rootfs
from . import folder_cache
from .copying import Item, Owner, PackedFiles, pack, tree_path
from .dockerfile import Instruction
from .host_layers import FOLDER
from .images import OnLine
from .merged_view import MergedView
from .unpacking import Tar, UnpackLimits, unpack

_LAST_LINES = 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandRunner(Protocol):
    """Run a command in a root; its exit status. What it writes goes to `upper`, a folder for each tree."""

    async def __call__(
        self,
        root: Rootfs,
        command: Sequence[str],
        *,
        upper: Path,
        variables: Mapping[str, str],
        folder: str,
        user: str = "",
        network: bool,
        on_line: OnLine,
    ) -> int: ...


@dataclass
class BuildState:
    """Where a stage stands between two instructions."""

    root: Rootfs
    key: str
    """What is in the root."""
    user: str = ""
    command: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    notes: list[str] = field(default_factory=list)

    @property
    def known(self) -> dict[str, str]:
        return {**self.arguments, **self.variables}


class BuildSteps:
    """Makes steps, or finds them made."""

    def __init__(self, home: Path, *, run: CommandRunner, limits: UnpackLimits, network: bool) -> None:
        self.home = home
        self._place = folder_cache.place(home, "steps")
        self._run, self._limits, self._network = run, limits, network

    async def run(self, state: BuildState, origin: Instruction, command: Sequence[str], on_line: OnLine) -> None:
        """RUN: the command's exit status must be 0."""
        network = self._network and dict(origin.flags).get("network") != "none"
        variables = {"PATH": _PATH, "HOME": _home(state), **state.known}
        if MergedView(state.root).is_folder(FOLDER):
            above = variables.get("PYTHONPATH")
            variables["PYTHONPATH"] = f"{above}:{FOLDER}" if above else FOLDER
        last: deque[str] = deque(maxlen=_LAST_LINES)

        def listen(line: str) -> None:
            last.append(line)
            on_line(line)

        async def make(work: Path) -> None:
            status = await self._run(
                state.root,
                command,
                upper=work,
                variables=variables,
                folder=state.folder,
                user=state.user,
                network=network,
                on_line=listen,
            )
            if status:
                words = "\n".join(last)
                raise StartFailed(
                    f"Dockerfile line {origin.line}: RUN ended with status {status}; its last lines:\n{words}"
                )

        told = [f"{name}={value}" for name, value in sorted(variables.items())]
        await self._step(state, ["RUN", *command, state.folder, state.user, str(network), *told], make)

    async def put(self, state: BuildState, wanted: Sequence[Item], owner: Owner) -> None:
        with contextlib.ExitStack() as files:
            packed = await asyncio.to_thread(pack, wanted, state.root, owner, self._new_file(files))
            await self._step(state, ["COPY", packed.digest], lambda work: self._unpack(packed, work))

    async def put_archive(self, state: BuildState, archive: io.BufferedReader, what: str, target: str) -> None:
        """Unpack an archive into a folder of the stage's root."""
        tree, into = tree_path(state.root, target)
        key = ["ADD", hashlib.file_digest(archive, "sha256").hexdigest(), tree, into]
        archive.seek(0)

        async def make(work: Path) -> None:
            with contextlib.ExitStack() as files:
                # The folders above, with the modes that they have.
                await self._unpack(pack([Item(target)], state.root, Owner(), self._new_file(files)), work)
            await unpack([Tar(archive, into=into)], work / tree, what=what, limits=self._limits)
            _sort_into_trees(work, state.root, what)

        await self._step(state, key, make)

    async def _step(self, state: BuildState, parts: list[str], make: Callable[[Path], Awaitable[None]]) -> None:
        """Grow the stage's root by a layer, which `make` fills unless the same was made before."""
        state.key = folder_cache.digest([state.key, *parts])
        place = self._place / state.key
        trees = {target: target.lstrip("/") for target in state.root.system}
        async with folder_cache.locked(place):
            if not folder_cache.use(place):
                with folder_cache.new(place) as work:
                    for tree in ("root", *trees.values()):
                        (work / tree).mkdir(mode=0o755)
                    await make(work)
                    for name in os.listdir(work):
                        if name not in ("root", *trees.values()):  # an overlay's own
                            remove(str(work / name))
                        elif not stat.S_ISDIR((work / name).lstat().st_mode):
                            raise InvalidRequest(f"a layer's folder {name!r} has become something else")
        grown = {
            target: (place / tree, *state.root.system[target])
            if os.listdir(place / tree)
            else state.root.system[target]
            for target, tree in trees.items()
        }
        state.root = replace(state.root, layers=(place / "root", *state.root.layers), system=grown)

    async def _unpack(self, packed: PackedFiles, work: Path) -> None:
        for tree, file in packed.tars.items():
            await unpack([Tar(file)], work / tree, what="what is copied", limits=self._limits)

    def _new_file(self, files: contextlib.ExitStack) -> Callable[[], IO[bytes]]:
        return lambda: files.enter_context(tempfile.TemporaryFile(dir=self._place))


def _home(state: BuildState) -> str:
    """The home folder of the user that commands run as."""
    name = state.user.partition(":")[0] or "root"
    for line in (MergedView(state.root).read("/etc/passwd") or b"").decode(errors="replace").splitlines():
        columns = line.split(":")
        if len(columns) > 5 and name in (columns[0], columns[2]) and name not in ("root", "0"):
            return columns[5]
    return "/root" if name in ("root", "0") else "/"


def _sort_into_trees(work: Path, root: Rootfs, what: str) -> None:
    """Move what an archive has put below /usr to where that is; refuse what would hide a link to there."""
    view = MergedView(root)
    for name in os.listdir(work / "root"):
        brought, found = work / "root" / name, view.find(f"/{name}")
        if f"/{name}" in root.system and stat.S_ISDIR(brought.lstat().st_mode):
            (work / name).rmdir()
            brought.rename(work / name)
        elif f"/{name}" in root.system or (found is not None and found.is_symlink()):
            raise InvalidRequest(f"{what} would replace /{name}; unpack it with RUN tar -x instead of ADD")
