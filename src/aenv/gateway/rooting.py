"""Roots for instances: made once for each state of a project, however many instances ask at once.

Not here: which root an environment gets, and how it is made (`aenv.roots`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..config import load_project
from ..engines.base import InstanceSpec
from ..errors import StartFailed
from ..roots.roots import Roots
from ..sandbox.root import Root

logger = logging.getLogger("aenv.gateway")

Stamp = tuple[object, ...]

_LONGEST = 3600.0  # seconds; nobody else ends a RUN that never does


@dataclass(frozen=True)
class _Made:
    """A root, or the work on it; good for as long as its sources have this stamp."""

    sources: tuple[Path, ...]
    stamp: Stamp
    root: asyncio.Task[Root]

    @property
    def failed(self) -> bool:
        return self.root.done() and (self.root.cancelled() or self.root.exception() is not None)


class Rooting:
    """What an engine asks for roots. `async with` ends builds that nobody will wait for."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._made: dict[tuple[Path, str], _Made] = {}

    async def __aenter__(self) -> Rooting:
        return self

    async def __aexit__(self, *exc: object) -> None:
        waiting = [made.root for made in self._made.values() if not made.root.done()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def root_of(self, spec: InstanceSpec) -> Root:
        """The root of an instance. Whoever gives up waiting leaves the work to go on for the next one."""
        made = self._made.get((spec.project, spec.image))
        # What has failed was told to all who waited, and is tried again for the next one who asks.
        if made is None or made.failed or made.stamp != await _stamp(made.sources):
            made = await self._begun(spec, made)
        return made.root.result() if made.root.done() else await asyncio.shield(made.root)

    async def collect(self, older_than: float) -> tuple[str, ...]:
        """Remove roots that nobody has used for so many seconds; those that instances live in stay."""
        kept = [made.root.result() for made in self._made.values() if made.root.done() and not made.failed]
        return await self._roots.collect(kept, older_than)

    async def _begun(self, spec: InstanceSpec, before: _Made | None) -> _Made:
        key = spec.project, spec.image
        sources = self._roots.sources(load_project(spec.project), spec.image)
        stamp = await _stamp(sources)
        found = self._made.get(key)
        if found is not None and found is not before and found.stamp == stamp:
            return found  # somebody else has begun meanwhile
        made = self._made[key] = _Made(sources, stamp, asyncio.create_task(self._make(spec)))
        made.root.add_done_callback(lambda task: task.cancelled() or task.exception())  # told to whoever asks
        return made

    async def _make(self, spec: InstanceSpec) -> Root:
        def tell(line: str) -> None:
            logger.info("root of %s: %s", spec.environment, line)

        try:
            async with asyncio.timeout(_LONGEST):
                root = await self._roots.root_for(load_project(spec.project), spec.image, tell)
        except TimeoutError:
            raise StartFailed(
                f"the root of {spec.environment!r} was not made within {_LONGEST / 60:g} minutes"
            ) from None
        for note in root.notes:
            tell(note)
        return root


async def _stamp(sources: tuple[Path, ...]) -> Stamp:
    """Changes whenever one of these files does, or a file in one of these folders."""
    found = [_facts(path) for path in sources]
    if not any(path.is_dir() for path in sources):
        return tuple(found)
    return await asyncio.to_thread(lambda: (*found, *(facts for path in sources for facts in _walk(path))))


def _walk(folder: Path) -> Iterator[Stamp]:
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
        for name in sorted(files):
            yield path, name, _facts(Path(path, name))


def _facts(path: Path) -> Stamp:
    with contextlib.suppress(OSError):
        found = path.lstat()
        return found.st_mtime_ns, found.st_size, found.st_mode
    return ()
