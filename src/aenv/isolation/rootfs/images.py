"""Images: unpacked once, into one folder each, and found by their names.

An image is `<home>/roots/images/<digest of its configuration>`; `index.json` there says what a name means.
Not here: what saved images look like (`saved_images.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from ...base.errors import Conflict, NotFound, StartFailed, Unsupported
from ..sandbox.rootfs import Rootfs
from . import folder_cache
from .references import canonical
from .saved_images import SavedImage, read_layout
from .unpacking import Tar, UnpackLimits, unpack

OnLine = Callable[[str], None]
_LAST_WORDS = 1000


@dataclass(frozen=True)
class LocalImage:
    """An unpacked image, and what its author said about running it."""

    digest: str
    place: Path
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    user: str = ""
    command: tuple[str, ...] = ()
    """Entry point and arguments."""

    def root(self, name: str = "") -> Rootfs:
        return Rootfs(name or f"sha256:{self.digest}", (self.place / "root",), {}, self.variables, self.folder)


class Images:
    """The images of one home. With `pull`, the program that fetches those which are not there yet."""

    def __init__(
        self, home: Path, *, pull: Literal["", "skopeo", "podman"] = "", limits: UnpackLimits | None = None
    ) -> None:
        self.place = folder_cache.place(home, "images")
        self.index = self.place / "index.json"
        self._pull = pull
        self._limits = limits or UnpackLimits()

    def names(self) -> dict[str, str]:
        """Which name means which digest."""
        with contextlib.suppress(FileNotFoundError):
            names: dict[str, str] = json.loads(self.index.read_text())
            return names
        return {}

    def find(self, reference: str) -> LocalImage | None:
        """By its name, or by its digest."""
        digest = reference.removeprefix("sha256:") if reference.startswith("sha256:") else None
        digest = digest or self.names().get(canonical(reference), "")
        place = self.place / digest
        if not digest.isalnum() or not folder_cache.use(place):
            return None
        said = json.loads((place / "image.json").read_text())
        return LocalImage(digest, place, **{**said, "command": tuple(said["command"])})

    async def load(self, path: Path, name: str = "", *, is_named: bool = True) -> LocalImage:
        """Unpack a saved image, a file or a folder, and call it `name`, or else what it calls itself.

        Its maker could call it `debian:12`; for strangers, `is_named=False` gives it no name at all.
        """
        if stat.S_ISDIR(os.stat(path).st_mode):
            saved = read_layout(path, name)
            names = (canonical(name),) if name else saved.names
            return await self._add(saved, names if is_named else ())
        with folder_cache.scratch(self.place) as work, path.open("rb") as file:
            await unpack([Tar(file)], work, what=repr(str(path)), limits=self._limits)
            return await self.load(work, name, is_named=is_named)

    async def pull(self, reference: str, on_line: OnLine | None = None) -> LocalImage:
        """Fetch an image with the program that the operator has chosen."""
        if not self._pull:
            raise NotFound(
                f"no image {reference!r} here; save it elsewhere with 'docker save', "
                f"then: aenv image load FILE --name {reference}"
            )
        if shutil.which(self._pull) is None:
            raise Unsupported(f"cannot fetch {reference!r}: {self._pull} is not installed")
        name = canonical(reference)
        with folder_cache.scratch(self.place) as work:
            if self._pull == "skopeo":
                target = work / "layout"
                await run_program(["skopeo", "copy", f"docker://{name}", f"oci:{target}:latest"], on_line)
            else:
                target = work / "image.tar"
                await run_program(["podman", "pull", "--quiet", name], on_line)
                await run_program(
                    ["podman", "save", "--format", "docker-archive", "--output", str(target), name], on_line
                )
            return await self.load(target, name)

    async def remove(self, reference: str) -> None:
        """Forget a name, and remove the image when it was its last. Conflict while an instance lives in it."""
        async with folder_cache.locked(self.index):
            names = self.names()
            digest = names.pop(canonical(reference), None)
            if digest is None:
                raise NotFound(f"no image {reference!r}; there are {', '.join(sorted(names)) or 'none'}")
            if digest not in names.values() and digest in await asyncio.to_thread(folder_cache.mounted):
                raise Conflict(f"instances use image {reference!r}; end them first ('aenv ps' lists them)")
            self._write(names)
        if digest not in names.values():
            await asyncio.to_thread(folder_cache.discard, self.place / digest)

    async def collect(self, keep: set[str], older_than: float) -> list[str]:
        """Remove those that were not used in the last `older_than` seconds, except `keep`; their digests."""
        removed = await asyncio.to_thread(folder_cache.collect, self.place, keep, older_than)
        async with folder_cache.locked(self.index):
            self._write({name: digest for name, digest in self.names().items() if digest not in removed})
        return removed

    async def _add(self, saved: SavedImage, names: Sequence[str]) -> LocalImage:
        place = self.place / saved.digest
        async with folder_cache.locked(place):
            if not folder_cache.use(place):
                await self._unpack(saved, place)
        async with folder_cache.locked(self.index):
            self._write({**self.names(), **dict.fromkeys(names, saved.digest)})
        image = self.find(f"sha256:{saved.digest}")
        assert image is not None
        return image

    async def _unpack(self, saved: SavedImage, place: Path) -> None:
        said = saved.config.get("config") or {}
        pairs = (text.partition("=") for text in said.get("Env") or ())
        image = LocalImage(
            saved.digest,
            place,
            {name: value for name, _, value in pairs},
            said.get("WorkingDir") or "",
            said.get("User") or "",
            (*(said.get("Entrypoint") or ()), *(said.get("Cmd") or ())),
        )
        with folder_cache.new(place) as work, contextlib.ExitStack() as files:
            (work / "root").mkdir(mode=0o755)
            tars = [Tar(files.enter_context(path.open("rb")), digest) for path, digest in saved.layers]
            what = f"image {(*saved.names, saved.digest)[0]!r}"
            await unpack(tars, work / "root", what=what, limits=self._limits, whiteouts=True)
            facts = {name: value for name, value in asdict(image).items() if name not in ("digest", "place")}
            (work / "image.json").write_text(json.dumps(facts))

    def _write(self, names: dict[str, str]) -> None:
        new = self.index.with_suffix(".new")
        new.write_text(json.dumps(names, indent=1, sort_keys=True))
        new.replace(self.index)


async def run_program(
    command: list[str], on_line: OnLine | None, *, before: Callable[[], None] | None = None
) -> None:
    """Run a program of the host's; `before` is done in its process first. StartFailed with its last words."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        preexec_fn=before,
    )
    assert process.stdout is not None
    said = ""
    try:
        async for line in process.stdout:
            said = (said + line.decode(errors="replace"))[-_LAST_WORDS:]
            if on_line:
                on_line(line.decode(errors="replace").rstrip())
        failed = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if failed:
        raise StartFailed(f"{' '.join(command[:2])} failed; it said:\n{said.strip()}")
