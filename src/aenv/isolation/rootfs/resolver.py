"""Which root an environment gets: its image, else what its Dockerfile says, else the host's own system."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ...base.config import FILE_NAME, Project
from ...base.errors import InvalidRequest, NotFound, StartFailed
from ..sandbox.inside_paths import WORKSPACE
from ..sandbox.rootfs import Rootfs
from . import bases, folder_cache
from .build_steps import BuildState, BuildSteps, CommandRunner
from .debian import certificates_layer, debian
from .docker_builds import Docker
from .dockerfile_build import build
from .host_layers import folders_layer, packages_layer, runtime_layer
from .host_rootfs import description, host_root
from .images import Images, LocalImage, OnLine
from .merged_view import MergedView
from .unpacking import UnpackLimits


@dataclass(frozen=True)
class _RootfsChoice:
    """A root before it is made, and in words."""

    kind: Literal["image", "file", "pull", "dockerfile", "host"]
    value: str
    words: str
    notes: tuple[str, ...] = ()


class RootfsResolver:
    """The roots of one home. `run` runs what Dockerfiles say; `pull` names the program that fetches images.

    With `makes_bases` a sidecar whose base is not here stands on a small system that is made for it, where the
    host has the program and the network for that.
    """

    def __init__(
        self,
        home: Path,
        *,
        run: CommandRunner,
        pull: Literal["", "skopeo", "podman"] = "",
        limits: UnpackLimits | None = None,
        network: bool = True,
        makes_bases: bool = False,
    ) -> None:
        self.home, self._pull, self._network = home, pull, network
        self._makes_bases = makes_bases and network
        self.images = Images(home, pull=pull, limits=limits)
        self._steps = BuildSteps(home, run=run, limits=limits or UnpackLimits(), network=network)
        self._loaded: dict[tuple[str, int, int], str] = {}

    async def root_for(self, project: Project, image: str = "", on_line: OnLine | None = None) -> Rootfs:
        """The environment's root, made when it is missing, which may take minutes.

        `image` comes before the artifact that config.json names. What could not be used is in the root's notes.
        """
        choice = self._choice(project, image)
        if choice.kind == "host":
            root = await asyncio.to_thread(host_root, self.home)
        elif choice.kind == "dockerfile":
            root = await self._build(project, choice.value, on_line)
        elif choice.kind == "file":
            root = (await self._load_once(Path(choice.value))).root(choice.value)
        else:
            root = await self.image(choice.value, on_line)
        return replace(root, notes=(*choice.notes, *root.notes))

    def describe(self, project: Project, image: str = "") -> str:
        """Which root an environment gets, and why, in words; nothing is made."""
        choice = self._choice(project, image)
        return "; ".join((choice.words, *choice.notes))

    def sources(self, project: Project, image: str = "") -> tuple[Path, ...]:
        """The files, and the folder, on which it depends which root an environment gets and what is in it."""
        choice = self._choice(project, image)
        always = (project.path / FILE_NAME, project.path / project.build.dockerfile, self.images.index)
        further = {"dockerfile": (project.path,), "file": (Path(choice.value),)}
        return (*always, *further.get(choice.kind, ()))

    async def image(self, reference: str, on_line: OnLine | None = None) -> Rootfs:
        """An image by its name, fetched if that is configured. NotFound says how to bring it here."""
        image = self.images.find(reference) or await self.images.pull(reference, on_line)
        return image.root(reference)

    async def sidecar(self, dockerfile: Path | None, on_line: OnLine | None = None) -> Rootfs:
        """The root of a sidecar: what a Dockerfile says in its own folder; without one, the host's own system.

        Docker builds it where a daemon answers, else we do it ourselves; the same content is built once.
        """
        if dockerfile is None:
            root = await asyncio.to_thread(host_root, self.home)
            return replace(root, folder=WORKSPACE)
        text = await _text_of(dockerfile, repr(dockerfile.name))
        context, name = dockerfile.parent, f"Dockerfile in {dockerfile.parent.name!r}"
        docker = Docker(self.images, network=self._network)
        if image := await docker.built(dockerfile, on_line or (lambda line: None)):
            return image.root(name)
        # Tasks rely on what their base is; environments begin sooner on the host's own system.
        find_base = partial(self._find_base, makes_bases=self._makes_bases)
        return await build(text, context, name=name, steps=self._steps, find_base=find_base, on_line=on_line)

    async def collect(self, keep: Iterable[Rootfs], older_than: float) -> tuple[str, ...]:
        """Remove what was not used in the last `older_than` seconds, except what `keep` is made of."""
        top = folder_cache.place(self.home)
        folders = [folder for root in keep for layers in (root.layers, *root.system.values()) for folder in layers]
        kept = {part for folder in folders if folder.is_relative_to(top) for part in folder.relative_to(top).parts}
        steps = await asyncio.to_thread(
            folder_cache.collect, folder_cache.place(self.home, "steps"), kept, older_than
        )
        hosts = await asyncio.to_thread(folder_cache.collect, top, kept | {"images", "steps"}, older_than)
        return (*await self.images.collect(kept, older_than), *steps, *hosts)

    def _choice(self, project: Project, image: str) -> _RootfsChoice:
        reference = image or project.image
        notes: tuple[str, ...] = ()
        if reference:
            if reference.startswith((".", "/")):
                if path := _inside(project, reference):
                    return _RootfsChoice("file", str(path), f"the image in its file {reference!r}")
                return self._without_image(project, (f"its image {reference!r} is not in the project's folder",))
            if self.images.find(reference):
                return _RootfsChoice("image", reference, f"its image {reference!r}")
            if self._pull:
                return _RootfsChoice("pull", reference, f"its image {reference!r}, fetched with {self._pull}")
            notes = (
                f"its image {reference!r} is not here; bring it with: aenv image load FILE --name {reference}",
            )
        return self._without_image(project, notes)

    def _without_image(self, project: Project, notes: tuple[str, ...]) -> _RootfsChoice:
        spelled = project.build.dockerfile
        if (path := _inside(project, spelled)) and path.is_file():
            return _RootfsChoice("dockerfile", str(path), f"what its {spelled} says", notes)
        why = "" if notes else ": it names no image and has no Dockerfile"
        return _RootfsChoice("host", "", f"the host's own system, {_host_words()}{why}", notes)

    async def _build(self, project: Project, file: str, on_line: OnLine | None) -> Rootfs:
        text = await _text_of(Path(file), str(project.ref))
        context = MergedView(Rootfs("project", (project.path,)))
        folder = context.find(context.resolve(project.build.context)) or project.path
        name = f"Dockerfile of {project.ref}"
        layered = folder == project.path  # where the requirements.txt is that of the layer
        return await build(
            text,
            folder,
            name=name,
            steps=self._steps,
            find_base=self._find_base,
            on_line=on_line,
            layered=layered,
        )

    async def _find_base(self, reference: str, tell: OnLine, *, makes_bases: bool = False) -> BuildState:
        if reference == "scratch":
            empty = folder_cache.place(self.home, "steps") / "scratch"
            await asyncio.to_thread(empty.mkdir, exist_ok=True)
            return BuildState(Rootfs("scratch", (empty,)), "scratch")
        image = self.images.find(reference)
        if image is None and self._pull:
            image = await self.images.pull(reference)
        if image is not None:
            root = image.root(reference)
            folder = image.folder or "/"
            return BuildState(root, image.digest, image.user, image.command, dict(image.variables), folder=folder)
        wanted = bases.base(reference)
        if wanted is None:
            raise NotFound(
                f"no image {reference!r}, which the Dockerfile begins with; save it elsewhere with 'docker save', "
                f"then: aenv image load FILE --name {reference}"
            )
        state = await self._made_base(reference, tell) if makes_bases else None
        if state is None:
            root = await asyncio.to_thread(_host_base, self.home)
            note = f"{reference} stands for the host's own system ({_host_words()})"
            key = folder_cache.digest(layer.name for layer in root.layers)
            state = BuildState(root, key, variables=_host_variables(), notes=[note])
        await bases.provide(wanted, state, self._steps, tell)
        return state

    async def _made_base(self, reference: str, tell: OnLine) -> BuildState | None:
        """A small system of its own that stands for a base; None where none can be made."""
        try:
            made = await debian(self.home, tell)
        except StartFailed as error:
            tell(f"no base could be made, so the host's own system stands for {reference}: {error.message}")
            return None
        if made is None:
            return None
        place, words = made
        variables = {"PIP_BREAK_SYSTEM_PACKAGES": "1"}  # as for the host's own system
        note = f"{words} stands for {reference}"
        layers = (await asyncio.to_thread(certificates_layer, self.home), place)
        key = folder_cache.digest([layers[0].name, place.parent.name])
        return BuildState(Rootfs(reference, layers), key, variables=variables, notes=[note])

    async def _load_once(self, path: Path) -> LocalImage:
        status = os.stat(path)
        key = (str(path), status.st_mtime_ns, status.st_size)
        image = self.images.find(f"sha256:{self._loaded[key]}") if key in self._loaded else None
        if image is None:
            image = await self.images.load(path, is_named=False)
            self._loaded[key] = image.digest
        return image


async def _text_of(file: Path, what: str) -> str:
    try:
        return await asyncio.to_thread(file.read_text, encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the Dockerfile of {what} is not text: {error}") from None
    except OSError as error:
        raise NotFound(f"the Dockerfile of {what} cannot be read: {error.strerror or error}") from None


def _inside(project: Project, path: str) -> Path | None:
    """A file or folder of the project; never one outside, wherever links lead."""
    view = MergedView(Rootfs("project", (project.path,)))
    found = view.find(view.resolve(path)) if "\0" not in path else None
    return found if found is not None and found != project.path and (found.is_file() or found.is_dir()) else None


def _host_base(home: Path) -> Rootfs:
    """The host root as something to build on: with its package database, and folders that can be written into."""
    root, packages = host_root(home), packages_layer(home)
    system = {target: (folders_layer(home, folders[0]), *folders) for target, folders in root.system.items()}
    return replace(root, layers=(*filter(None, (packages,)), runtime_layer(home), *root.layers), system=system)


def _host_words() -> str:
    found = (re.match(r"python3\.(\d+)\Z", name) for name in os.listdir("/usr/bin"))
    minors = sorted(int(match[1]) for match in found if match)
    return ", ".join((description(), f"Python 3.{minors[-1]}" if minors else "no Python"))


def _host_variables() -> dict[str, str]:
    """Where the system's packager owns Python's packages, pip must be told that this is only a copy."""
    is_owned = any(Path("/usr/lib").glob("python3*/EXTERNALLY-MANAGED"))
    return {"PIP_BREAK_SYSTEM_PACKAGES": "1"} if is_owned else {}
