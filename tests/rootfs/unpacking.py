"""Tars unpacked in a test, and what came of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from aenv.isolation.rootfs.unpacking import Tar, UnpackLimits, unpack


async def unpacked(
    tmp_path: Path, *tars: bytes, whiteouts: bool = True, limits: UnpackLimits | None = None
) -> Path:
    """A folder with these tars, one over the other."""
    target = tmp_path / "target"
    target.mkdir()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in tars]
        for handle, content in zip(files, tars, strict=True):
            handle.write(content)
            handle.seek(0)
        wanted = [Tar(handle) for handle in files]
        await unpack(wanted, target, what="it", limits=limits or UnpackLimits(), whiteouts=whiteouts)
    return target


def tree(root: Path) -> dict[str, str | None]:
    """Every path with its text, its link's target in <>, or None for folders."""
    found: dict[str, str | None] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = (
            f"<{os.readlink(path)}>" if path.is_symlink() else None if path.is_dir() else path.read_text()
        )
    return found
