"""Commands that need no sandbox, and what a root shows after them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aenv.isolation.rootfs.merged_view import MergedView
from aenv.isolation.sandbox.rootfs import Rootfs


class FakeRun:
    """Commands that need no sandbox: `write PATH TEXT`, `remove PATH`, `fail`; and what they were given."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[str, ...], Mapping[str, str], str, str, bool]] = []
        self.roots: list[Rootfs] = []

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
        on_line: Callable[[str], None],
    ) -> int:
        self.seen.append((tuple(command), variables, folder, user, network))
        self.roots.append(root)
        (upper / "work").mkdir()  # as an overlay leaves one
        on_line(f"doing {command[-1]}")
        match command[-1].split():
            case ["write", path, text]:
                place = upper / (path[1:] if path.startswith("/usr/") and root.system else f"root{path}")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
            case ["fail"]:
                return 7
        return 0

    @property
    def commands(self) -> list[str]:
        return [command[-1] for command, *_ in self.seen]


def content(root: Rootfs, top: str = "/") -> dict[str, str | None]:
    """Every path that a root shows, with its text; None for folders."""
    return {
        path: f"<{os.readlink(place)}>" if place.is_symlink() else None if place.is_dir() else place.read_text()
        for path, place in MergedView(root).walk(top)
    }
