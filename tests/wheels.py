"""A folder of wheels that stands for a package index: tests install from it without a network."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import zipfile
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    code: str | dict[str, str],
    requires: tuple[str, ...] = (),
    *,
    entry_points: str = "",
) -> Path:
    """A wheel with one module, or with these files."""
    info = f"{name}-{version}.dist-info"
    wanted = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        **({f"{name}.py": code} if isinstance(code, str) else code),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in files.items())
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def repacked(folder: Path, *names: str) -> Path:
    """Make wheels of packages that are installed here, and of all that they need."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting, done = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        found = importlib.metadata.distribution(name)
        info = next(file.parent for file in found.files or () if file.name == "METADATA")
        stem = info.name.removesuffix(".dist-info")
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for file in found.files or ():
                if ".." not in file.parts and file.suffix != ".pyc":
                    wheel.write(str(file.locate()), str(file))
        plain = (re.fullmatch(r"([\w.-]+)[^;]*", line) for line in found.requires or ())  # none with a condition
        waiting += [match[1] for match in plain if match]
    return folder
