"""Dockerfiles built by Docker, where its daemon answers; what it has built is kept among the images here.

Not here: doing a Dockerfile without Docker (`dockerfile_build.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from ..sandbox import system
from . import folder_cache
from .images import Images, LocalImage, OnLine, run_program

_ANSWERS = 5.0  # seconds in which a daemon must do so
_NAME = "aenv.invalid/sidecar"  # of no registry, so that no image with such a name can be published


class Docker:
    def __init__(self, images: Images, *, network: bool) -> None:
        self._images = images
        self._network = network

    async def built(self, dockerfile: Path, on_line: OnLine) -> LocalImage | None:
        """The image of a Dockerfile and the folder it lies in, built unless it is here; None without a daemon.

        StartFailed with the last lines of the build when it fails. Docker itself keeps no name of it.
        """
        # Another one with each change of the Dockerfile, and of whatever is in its folder.
        parts = chain((str(self._network), dockerfile.name), _content(dockerfile.parent, ""))
        key = await asyncio.to_thread(folder_cache.digest, parts)
        name = f"{_NAME}:{key[:32]}"
        if image := self._images.find(name):
            return image
        if not await _answers():
            return None
        with folder_cache.scratch(self._images.place) as work:
            saved = work / "image.tar"
            narrowed = [] if self._network else ["--network", "none"]
            words = ["build", "--tag", name, *narrowed, "--file", str(dockerfile), str(dockerfile.parent)]
            await _docker(words, on_line)
            try:
                await _docker(["save", "--output", str(saved), name], on_line)
            finally:
                await _docker(["image", "rm", name], on_line)  # the name alone; others keep what they have
            return await self._images.load(saved, name)


async def _docker(words: list[str], on_line: OnLine) -> None:
    await run_program(["docker", *words], on_line, before=_die_with_us)


def _die_with_us() -> None:
    """In the child: a gateway that is killed leaves no build behind."""
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)


async def _answers() -> bool:
    if shutil.which("docker") is None:
        return False
    process = await asyncio.create_subprocess_exec(
        *("docker", "version", "--format", "{{.Server.Version}}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_die_with_us,
    )
    try:
        async with asyncio.timeout(_ANSWERS):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _content(folder: Path, above: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path, facts = f"{above}/{entry.name}", entry.stat(follow_symlinks=False)
        yield f"{path} {facts.st_mode:o}"
        if stat.S_ISDIR(facts.st_mode):
            yield from _content(Path(entry.path), path)
        elif stat.S_ISLNK(facts.st_mode):
            yield os.readlink(entry.path)
        elif stat.S_ISREG(facts.st_mode):
            with open(entry.path, "rb") as file:
                yield hashlib.file_digest(file, "sha256").hexdigest()
