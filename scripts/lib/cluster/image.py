"""An image archive of a folder: `image.py FOLDER NAME:TAG ARCHIVE [COMMAND…]`, as `docker load` reads it."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def write(
    root: Path, name: str, archive: Path, command: list[str], variables: dict[str, str] | None = None
) -> None:
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as packed:
        packed.add(root, ".", filter=_owned_by_root)
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": [f"{key}={value}" for key, value in (variables or {}).items()]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [],
    }
    text = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as packed:
        packed.add(layer, f"{digest}/layer.tar")
        for file, content in ((config_name, text), ("manifest.json", json.dumps(manifest).encode())):
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    layer.unlink()


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
