"""Our own wheel, made from what is installed: an image then runs the aenv that built it.

Works from an editable installation too, and needs neither a build tool nor a network. Not here: the wheel of a
release (`scripts/release`).
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import aenv

FOLDER = ".aenv"
"""Where a Dockerfile finds the wheel: `COPY .aenv/*.whl ./`."""

_PARTS = ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same files give the same wheel


@contextmanager
def beside(context: Path) -> Iterator[None]:
    """The wheel lies in `context` for the time of the block, and nothing of it afterwards."""
    folder = context / FOLDER
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    wheel = write(folder)
    try:
        yield
    finally:
        wheel.unlink(missing_ok=True)
        if is_new:
            folder.rmdir()


def write(folder: Path) -> Path:
    """Write the wheel into `folder`; in the place of one that a killed build has left."""
    installed = metadata.distribution("aenvironment")
    name = f"aenvironment-{installed.version}"
    path = folder / f"{name}-py3-none-any.whl"
    told = {f"{name}.dist-info/{part}": (installed.read_text(part) or "").encode() for part in _PARTS}
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(inside: str, content: bytes, mode: int = 0o644) -> None:
            entry = zipfile.ZipInfo(inside, _LONG_AGO)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={digest},{len(content)}\n")

        for file, inside in _files():
            add(inside, file.read_bytes(), 0o755 if file.stat().st_mode & 0o100 else 0o644)
        for inside, content in told.items():
            add(inside, content)
        listed = f"{name}.dist-info/RECORD"
        add(listed, f"{''.join(record)}{listed},,\n".encode())
    return path


def _files() -> Iterator[tuple[Path, str]]:
    package = Path(aenv.__file__).parent
    for file in sorted(package.rglob("*")):
        inside = file.relative_to(package.parent)
        is_made = any(part.endswith(("__pycache__", "_cache")) for part in inside.parts)
        if file.is_file() and not is_made and file.suffix != ".pyc":
            yield file, inside.as_posix()
