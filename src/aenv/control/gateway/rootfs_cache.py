"""Roots for instances: made once for each state of a project, however many instances ask at once.

Not here: which root an environment gets, and how it is made (`aenv.isolation.rootfs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...artifacts import requirements
from ...base.config import load_project
from ...base.errors import StartFailed
from ...engines.base import InstanceSpec, LazySidecar
from ...isolation.rootfs.images import OnLine
from ...isolation.rootfs.resolver import RootfsResolver
from ...isolation.sandbox.rootfs import Rootfs
from ..serving import job_steps

logger = logging.getLogger("aenv.control.gateway")

Stamp = tuple[object, ...]
_Make = Callable[[OnLine], Awaitable[Rootfs]]

_UNUSED = 30 * 86400.0  # seconds for which an unused rootfs is kept
_COLLECT_EVERY = 86400.0
_KNOWN = 0.1  # seconds for which a look at the sources holds: many instances are made at the same time
_LONGEST = 3600.0  # seconds; nothing else ends a RUN that never does


@dataclass
class _Made:
    """A root, or the work on it; good for as long as its sources have this stamp."""

    sources: tuple[Path, ...]
    stamp: Stamp
    root: asyncio.Task[Rootfs]
    looked_at: float = -math.inf
    """When it was last found to be there and made of what its sources are."""

    @property
    def failed(self) -> bool:
        return self.root.done() and (self.root.cancelled() or self.root.exception() is not None)

    @property
    def is_gone(self) -> bool:
        """Whether it cannot be used: it was never finished, or another process has removed it since."""
        return self.failed or (self.root.done() and not all(map(os.path.isdir, self.root.result().layers)))


class RootfsCache:
    """What an engine asks for a rootfs. `async with` ends builds that no instance waits for."""

    def __init__(self, roots: RootfsResolver) -> None:
        self._roots = roots
        self._made: dict[tuple[Path, str], _Made] = {}
        self._waiting: Counter[tuple[Path, str]] = Counter()
        """How many wait for the root of a sidecar."""
        self._dropped: set[asyncio.Task[Rootfs]] = set()
        self._collecting: asyncio.Task[None] | None = None
        self._collected_at = -math.inf

    async def __aenter__(self) -> RootfsCache:
        return self

    async def __aexit__(self, *exc: object) -> None:
        waiting: list[asyncio.Task[Any]] = [*self._dropped, *(made.root for made in self._made.values())]
        waiting += [self._collecting] if self._collecting else []
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def root_of(self, spec: InstanceSpec) -> Rootfs:
        """The rootfs of an instance. When a caller gives up waiting, the work goes on for the next one."""

        def make(tell: OnLine) -> Awaitable[Rootfs]:
            return self._roots.root_for(load_project(spec.project, is_published=True), spec.image, tell)

        def sources() -> tuple[Path, ...]:
            return self._roots.sources(load_project(spec.project, is_published=True), spec.image)

        return await self._made_once((spec.project, spec.image), sources, f"root of {spec.environment}", make)

    async def lazy_sidecar_rootfs(self, sidecar: LazySidecar) -> Rootfs:
        """The root of a sidecar that is made at its first use. The last who gives up waiting ends the work."""
        file = sidecar.dockerfile
        if file is None:
            return await self._roots.sidecar(None)
        # First: it is sooner known than a build that they cannot be had.
        packages = await self._packages(f"the Dockerfile in {file.parent.name!r}", sidecar.requirements)
        return replace(await self._built_sidecar(file), packages=packages)

    async def _packages(self, what: str, wanted: tuple[str, ...]) -> Path | None:
        def tell(line: str) -> None:
            logger.info("packages for %s: %s", what, line)

        try:
            return await requirements.folder_of(wanted, self._roots.home, what=what, on_line=tell)
        except StartFailed as error:
            raise StartFailed(
                f"{error.message}\nlet this machine reach a package index, or name one that it reaches with "
                "UV_DEFAULT_INDEX or UV_FIND_LINKS; what was installed once needs none"
            ) from None

    async def _built_sidecar(self, file: Path) -> Rootfs:
        key, name = (file, "sidecar"), f"root of the Dockerfile in {file.parent.name!r}"
        self._waiting[key] += 1
        try:
            return await self._made_once(key, lambda: (file.parent,), name, partial(self._roots.sidecar, file))
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                if (made := self._made.get(key)) and not made.root.done():
                    self._drop(key, made.root)

    def _drop(self, key: tuple[Path, str], work: asyncio.Task[Rootfs]) -> None:
        del self._made[key]  # at once: a request while it ends must not be given what is being ended
        work.cancel()
        self._dropped.add(work)
        work.add_done_callback(self._dropped.discard)

    async def _made_once(
        self, key: tuple[Path, str], sources: Callable[[], tuple[Path, ...]], name: str, make: _Make
    ) -> Rootfs:
        made = self._made.get(key)
        # What has failed was told to all who waited, and is tried again for the next one who asks.
        if made is None or time.monotonic() - made.looked_at > _KNOWN:
            if made is None or made.is_gone or made.stamp != await _stamp(made.sources):
                made = await self._begun(key, sources(), made, name, make)
            elif made.root.done():
                made.looked_at = time.monotonic()
        if made.root.done():
            return made.root.result()
        try:
            return await asyncio.shield(made.root)
        finally:
            job_steps.at("")

    async def _begun(
        self, key: tuple[Path, str], sources: tuple[Path, ...], before: _Made | None, name: str, make: _Make
    ) -> _Made:
        stamp = await _stamp(sources)
        found = self._made.get(key)
        if found is not None and found is not before and found.stamp == stamp:
            return found  # another request has begun meanwhile
        made = self._made[key] = _Made(sources, stamp, asyncio.create_task(self._make(name, make)))
        made.root.add_done_callback(lambda task: task.cancelled() or task.exception())  # told to each caller
        return made

    async def _make(self, name: str, make: _Make) -> Rootfs:
        def tell(line: str) -> None:
            job_steps.at(f"making the {name}: {line.strip()}")
            logger.info("%s: %s", name, line)

        job_steps.at(f"making the {name}")

        try:
            async with asyncio.timeout(_LONGEST):
                root = await make(tell)
        except TimeoutError:
            raise StartFailed(f"the {name} was not made within {_LONGEST / 60:g} minutes") from None
        for note in root.notes:
            tell(note)
        if time.monotonic() - self._collected_at > _COLLECT_EVERY:
            self._collected_at = time.monotonic()
            self._collecting = asyncio.create_task(self._collect())
        return root

    async def _collect(self) -> None:
        """Remove each rootfs that was not used for long; those that instances live in stay."""
        kept = [made.root.result() for made in self._made.values() if made.root.done() and not made.failed]
        try:
            if removed := await self._roots.collect(kept, _UNUSED):
                logger.info("removed %d unused folders of rootfs", len(removed))
        except OSError as error:
            logger.warning("old roots cannot be removed: %s", error)


async def _stamp(sources: tuple[Path, ...]) -> Stamp:
    """Changes whenever one of these files does, or a file in one of these folders."""
    found = [_facts(path) for path in sources]
    folders = [path for path, facts in zip(sources, found, strict=True) if facts and stat.S_ISDIR(facts[0])]
    if not folders:  # as for most: then it takes some microseconds
        return tuple(found)
    return await asyncio.to_thread(lambda: (*found, *(facts for path in folders for facts in _walk(path))))


def _walk(folder: Path) -> Iterator[Stamp]:
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
        for name in sorted(files):
            yield path, name, _facts(f"{path}/{name}", follow=False)


def _facts(path: Path | str, *, follow: bool = True) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        found = os.stat(path, follow_symlinks=follow)
        return found.st_mode, found.st_mtime_ns, found.st_size
    return ()
