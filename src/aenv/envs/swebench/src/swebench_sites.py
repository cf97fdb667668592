"""The interpreter that runs an instance's tests, and the packages beside it: our own interpreter, and wheels.

A virtual environment is written by hand, with nothing in it but what the data folder has for the instance:
packages of the host are out of its sight, pytest above all. From, in this order:

    venvs/ID/lib/pythonX.Y/site-packages     a ready folder, for one instance
    wheels/ID/*.whl, wheels/*.whl            unpacked; versions as environment.yml pins them, else the newest

Nothing is built and nothing is fetched.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from swebench_records import BadRecord, Record
from swebench_yaml import YamlError, parse

_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl\Z"
)
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*={2,3}\s*(?P<version>[^\s;,#]+)")
_INSTALLED = ("purelib", "platlib")


class NoSite(Exception):
    """The packages that tests need cannot be had; the message says which, and how to get them."""


@dataclass(frozen=True)
class Site:
    """A Python for tests."""

    python: Path
    packages: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Wheel:
    file: Path
    project: str
    version: str


def build(record: Record, data: Path, folder: Path) -> Site:
    """Write the virtual environment of a record into `folder`."""
    base = interpreter()
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages, programs = folder / "lib" / name / "site-packages", folder / "bin"
    for place in (packages, programs):
        place.mkdir(parents=True)
    for link in ("python", "python3", name):
        (programs / link).symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    ready = data / "venvs" / record.id / "lib"
    if ready.is_dir():
        found = ready / name / "site-packages"
        if not found.is_dir():
            raise NoSite(f"{str(ready)!r} is of another Python than ours; it should hold {name}/site-packages")
        (packages / "ready.pth").write_text(f"{found}\n")
        return Site(programs / "python", packages)
    chosen, notes = _chosen(record, data)
    for wheel in chosen:
        try:
            _unpack(wheel.file, packages)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise NoSite(f"{str(wheel.file)!r} cannot be unpacked: {error}; fetch it again") from None
    return Site(programs / "python", packages, notes)


def interpreter() -> Path:
    """Our own interpreter, without the virtual environment that it may be in."""
    return Path(os.path.realpath(sys.executable))


def pins(text: str) -> dict[str, str]:
    """What an environment.yml pins for pip: versions by the names of projects."""
    if not text.strip():
        return {}
    try:
        said = parse(text)
    except YamlError as error:
        raise BadRecord(f"environment.yml cannot be read: {error}") from None
    found: dict[str, str] = {}
    wanted = said.get("dependencies", []) if isinstance(said, dict) else []
    for one in wanted if isinstance(wanted, list) else []:
        lines = one.get("pip", []) if isinstance(one, dict) else []
        for line in lines if isinstance(lines, list) else []:
            if match := _PIN.match(str(line).strip()):
                found[_normal(match["name"])] = match["version"]
    return found


def _chosen(record: Record, data: Path) -> tuple[list[_Wheel], tuple[str, ...]]:
    wheels = _wheels(data / "wheels" / record.id) or _wheels(data / "wheels")
    wanted = pins(record.environment)
    by_project: dict[str, list[_Wheel]] = {}
    for wheel in wheels:
        by_project.setdefault(wheel.project, []).append(wheel)
    own = {_normal(record.project), _normal(record.sdist.rpartition("-")[0])}
    chosen = []
    for project, ours in sorted(by_project.items()):
        if project in own:
            continue  # the tested tree is to be found, and not a release of it
        if project not in wanted:
            chosen.append(max(ours, key=lambda wheel: _order(wheel.version)))
            continue
        exact = [wheel for wheel in ours if wheel.version == wanted[project]]
        if not exact:
            raise NoSite(
                f"{record.id!r} pins {project}=={wanted[project]}, and {str(data / 'wheels')!r} has "
                f"{', '.join(wheel.version for wheel in ours)}; fetch it where there is a network: "
                f"pip download --only-binary :all: --dest wheels {project}=={wanted[project]}"
            )
        chosen.append(exact[0])
    missing = sorted({*wanted} - {*by_project} - own)
    return chosen, (f"pinned, and without a wheel here: {', '.join(missing)}",) if missing else ()


def _wheels(folder: Path) -> list[_Wheel]:
    """The wheels of a folder that this interpreter can use."""
    found = []
    for file in sorted(folder.glob("*.whl")):
        match = _WHEEL.match(file.name)
        if match and _fits(match):
            found.append(_Wheel(file, _normal(match["name"]), match["version"]))
    return found


def _fits(wheel: re.Match[str]) -> bool:
    major, minor = sys.version_info[:2]
    tags = wheel["python"].split(".")
    own = any(tag in (f"py{major}", f"cp{major}{minor}", f"py{major}{minor}") for tag in tags)
    stable = "abi3" in wheel["abi"] and any(
        (tag := re.match(r"cp3(\d+)$", one)) and int(tag[1]) <= minor for one in tags
    )
    platforms = wheel["platform"].split(".")
    machine = any("linux" in one and one.endswith(platform.machine()) for one in platforms)
    return (own or stable) and ("any" in platforms or machine) and "musllinux" not in wheel["platform"]


def _order(version: str) -> tuple[bool, list[int]]:
    """Newer is more; what is not final comes before all that is."""
    is_final = not re.search(r"[0-9](a|b|rc|\.dev)[0-9]*", version)
    return is_final, [int(part) for part in re.findall(r"\d+", version)]


def _unpack(wheel: Path, packages: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            path = PurePosixPath(info.filename)
            if path.is_absolute() or ".." in path.parts:
                raise NoSite(f"{wheel.name!r} holds {info.filename!r}, which leads out of it")
            parts = path.parts
            if parts and parts[0].endswith(".data"):
                if len(parts) < 3 or parts[1] not in _INSTALLED:
                    continue  # programs and headers
                parts = parts[2:]
            if not info.is_dir() and parts:
                target = packages.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
