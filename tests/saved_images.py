"""Images for tests: made by hand of a few files, or of a real Debian."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aenv.isolation.rootfs.references import architecture
from tests.system import require


def file(name: str, content: str | bytes = "", **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    held = content.encode() if isinstance(content, str) else content
    entry.size = len(held)
    return _with(entry, attributes), held


def folder(name: str, **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return _with(entry, attributes), b""


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return _with(tarfile.TarInfo(name), {"type": tarfile.SYMTYPE, "linkname": target}), b""


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return _with(tarfile.TarInfo(name), {"type": tarfile.LNKTYPE, "linkname": target}), b""


def device(name: str) -> tuple[tarfile.TarInfo, bytes]:
    return _with(tarfile.TarInfo(name), {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}), b""


def layer(*entries: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar of these entries, in this order."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=format) as tar:
        for entry, content in entries:
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def docker_archive(path: Path, *layers: bytes, names: Sequence[str] = ("tiny:1",), **said: Any) -> Path:
    """What `docker save` wrote before version 25."""
    config = _config(layers, said)
    entries = [file(f"{_hex(config)}.json", config.decode())]
    paths = []
    for content in layers:
        paths.append(f"{_hex(content)}/layer.tar")
        entries.append((_with(tarfile.TarInfo(paths[-1]), {"size": len(content)}), content))
    manifest = [{"Config": f"{_hex(config)}.json", "RepoTags": list(names) or None, "Layers": paths}]
    path.write_bytes(layer(*entries, file("manifest.json", json.dumps(manifest))))
    return path


def oci_layout(target: Path, *layers: bytes, name: str = "", is_nested: bool = False, **said: Any) -> Path:
    """An OCI layout, its layers compressed; with `is_nested`, for two architectures."""
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def add(content: bytes) -> dict[str, Any]:
        (blobs / _hex(content)).write_bytes(content)
        return {"digest": f"sha256:{_hex(content)}", "size": len(content)}

    config = add(_config(layers, said))
    described: Any = add(_json({"config": config, "layers": [add(gzip.compress(content)) for content in layers]}))
    if is_nested:
        other = add(_json({"config": add(_config((), {})), "layers": []}))
        described["platform"], other["platform"] = {"architecture": architecture()}, {"architecture": "s390x"}
        described = add(_json({"manifests": [other, described]}))
    described["annotations"] = {"org.opencontainers.image.ref.name": name} if name else {}
    (target / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [described]}))
    (target / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return target


def packed(source: Path, path: Path) -> Path:
    """A folder as a tar."""
    with tarfile.open(path, "w") as tar:
        tar.add(source, arcname=".")
    return path


def busybox() -> tuple[tuple[tarfile.TarInfo, bytes], ...]:
    """The entries of an image with a shell and little else."""
    program = Path(require("busybox", "busybox-static")).read_bytes()
    entry = _with(tarfile.TarInfo("bin/busybox"), {"size": len(program), "mode": 0o755})
    names = ("sh", "cat", "echo", "id", "ls", "mkdir", "rm", "touch", "chmod", "stat")
    return (folder("bin"), (entry, program), *(link(f"bin/{name}", "busybox") for name in names))


def debian(place: Path) -> Path:
    """A small Debian as a folder, made once for all tests that share `place`."""
    program = require("debootstrap", "debootstrap")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    done = subprocess.run([program, "--variant=minbase", "bookworm", place], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    return place


def as_ordinary_user(code: str, place: Path) -> str:
    """What Python code prints when somebody without rights runs it; `place` is given to them."""
    python, packages = Path("/usr/bin/python3"), [path for path in sys.path if path]
    if os.geteuid() == 0:
        os.chown(place, 65534, 65534)
        able = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    else:
        able, python = [], Path(sys.executable)
    command = [*able, "env", f"PYTHONPATH={':'.join(packages)}", python, "-c", code]
    version = subprocess.run(
        [*command[:-1], "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
    )
    if version.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip(f"an ordinary user has no Python {sys.version_info[0]}.{sys.version_info[1]} here")
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _config(layers: Sequence[bytes], said: dict[str, Any]) -> bytes:
    digests = [f"sha256:{_hex(content)}" for content in layers]
    machine = said.pop("architecture", architecture())
    return _json({"architecture": machine, "os": "linux", "config": said, "rootfs": {"diff_ids": digests}})


def _with(entry: tarfile.TarInfo, attributes: dict[str, Any]) -> tarfile.TarInfo:
    for name, value in attributes.items():
        setattr(entry, name, value)
    return entry


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
