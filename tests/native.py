"""What instances of the native engine leave on a host: looked for, and found or not."""

from __future__ import annotations

import glob
import hashlib
import os
from pathlib import Path


def group_name(home: Path) -> str:
    """The name of the control groups of a home."""
    return f"aenv-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"


def traces(home: Path) -> list[str]:
    """Folders of instances below `home`, and their control groups, but for those that are made ahead."""
    found = sorted((home / "run" / "instances").glob("*"))
    folders = [f"folder {path.name}" for path in found if not path.name.startswith("spare.")]
    return [*folders, *(f"group {path}" for path in groups(home))]


def groups(home: Path) -> list[Path]:
    """The control groups of a home's instances, but for those that are made ahead."""
    found = glob.glob(f"/sys/fs/cgroup/**/{group_name(home)}/*/", recursive=True)
    others = (".leaf", "spare.", "/zygote-")
    return [Path(path) for path in found if not any(other in path for other in others)]
