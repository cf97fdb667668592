"""The interpreter that runs an instance's tests, and the packages beside it.

A virtual environment is written by hand, with nothing in it but what the data folders have for the instance:
packages of the host are out of its sight, pytest above all. From, in this order:

    venvs/ID/lib/pythonX.Y/site-packages     a ready folder, for one instance
    wheels/ID/*.whl, wheels/*.whl            unpacked; versions as environment.yml pins them, else the newest

Nothing is built and nothing is fetched here: `swebench_prepare.py` does. Which interpreter: `swebench_pythons.py`.
"""

from __future__ import annotations

import platform
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import swebench_pythons as pythons
from swebench_paths import leads_out
from swebench_pythons import Interpreter
from swebench_records import Record

_WHEEL = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl\Z"
)
_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?\s*={2,3}\s*(?P<version>[^\s;,#]+)")
# Conda's builds of Python packages begin with "py": "mpmath=1.3.0=py39h06a4308_0".
_CONDA_PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<version>[^=\s]+)=py")
_INSTALLED = ("purelib", "platlib")


class NoSite(Exception):
    """The packages that tests need cannot be had; the message says which, and how to get them."""


@dataclass(frozen=True)
class Site:
    """A Python for tests."""

    python: Path
    packages: Path
    interpreter: Interpreter
    ready: Path | None = None
    """The folder of packages that was there already, outside of this one."""
    missing: str = ""
    """The packages that the record asks for and that are not here, in words."""


@dataclass(frozen=True)
class _Wheel:
    file: Path
    project: str
    version: str


def build(
    record: Record,
    places: Sequence[Path],
    folder: Path,
    tested: Path | None = None,
    base: Interpreter | None = None,
) -> Site:
    """Write the virtual environment of a record into `folder`; `tested`, of its tree, is as if installed."""
    base = base or pythons.own()
    name = f"python{base.minor}"
    packages, programs = folder / "lib" / name / "site-packages", folder / "bin"
    for place in (packages, programs):
        place.mkdir(parents=True)
    for link in ("python", "python3", name):
        (programs / link).symlink_to(base.path)
    (folder / "pyvenv.cfg").write_text(f"home = {base.path.parent}\ninclude-system-site-packages = false\n")
    if tested:
        # What an installation for development writes: no variable, and the same for all that tests start.
        (packages / "testbed.pth").write_text(f"{tested}\n")
    for place in places:
        ready = place / "venvs" / record.id / "lib"
        if ready.is_dir():
            found = ready / name / "site-packages"
            if not found.is_dir():
                raise NoSite(
                    f"{str(ready)!r} is of another Python than {base.minor}; it lacks {name}/site-packages"
                )
            (packages / "ready.pth").write_text(f"{found}\n")
            return Site(programs / "python", packages, base, found)
    chosen, missing = _chosen(record, places, base)
    for wheel in chosen:
        try:
            _unpack(wheel.file, packages)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise NoSite(f"{str(wheel.file)!r} cannot be unpacked: {error}; fetch it again") from None
    return Site(programs / "python", packages, base, None, missing)


def source_root(base: Path) -> str:
    """The folder of a tree that its packages are imported from: "src", "lib" or ""."""
    for name in ("src", "lib"):
        if any((base / name).glob("*/__init__.py")) or any((base / name).glob("*.py")):
            return name
    return ""


def pins(text: str) -> dict[str, str]:
    """What an environment.yml pins: versions by the names of projects, those of conda's Python packages too."""
    found: dict[str, str] = {}
    for one in pythons.dependencies(text):
        if isinstance(one, str) and (match := _CONDA_PIN.match(one.strip())):
            found[normal(match["name"])] = match["version"]
        lines = one.get("pip", []) if isinstance(one, dict) else []
        for line in lines if isinstance(lines, list) else []:
            if match := _PIN.match(str(line).strip()):
                found[normal(match["name"])] = match["version"]
    return {name: version for name, version in found.items() if name not in ("pip", "python")}


def _chosen(record: Record, places: Sequence[Path], base: Interpreter) -> tuple[list[_Wheel], str]:
    folders = [place / "wheels" / record.id for place in places] + [place / "wheels" for place in places]
    wheels = next((found for folder in folders if (found := _wheels(folder, base))), [])
    wanted = pins(record.environment)
    by_project: dict[str, list[_Wheel]] = {}
    for wheel in wheels:
        by_project.setdefault(wheel.project, []).append(wheel)
    own = {normal(record.project), normal(record.sdist.rpartition("-")[0])}
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
                f"{record.id!r} pins {project}=={wanted[project]}, and {str(folders[-1])!r} has "
                f"{', '.join(wheel.version for wheel in ours)}; fetch it where there is a network: "
                f"pip download --only-binary :all: --dest wheels {project}=={wanted[project]}"
            )
        chosen.append(exact[0])
    missing = sorted({*wanted} - {*by_project} - own)
    return chosen, ", ".join(missing) if wanted or chosen else "all packages of its tests"


def _wheels(folder: Path, base: Interpreter) -> list[_Wheel]:
    """The wheels of a folder that an interpreter can use."""
    found = []
    for file in sorted(folder.glob("*.whl")):
        match = _WHEEL.match(file.name)
        if match and _fits(match, base):
            found.append(_Wheel(file, normal(match["name"]), match["version"]))
    return found


def _fits(wheel: re.Match[str], base: Interpreter) -> bool:
    major, minor = map(int, base.minor.split("."))
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
            if leads_out(info.filename):
                raise NoSite(f"{wheel.name!r} holds {info.filename!r}, which leads out of it")
            parts = PurePosixPath(info.filename).parts
            if parts[0].endswith(".data"):
                if len(parts) < 3 or parts[1] not in _INSTALLED:
                    continue  # programs and headers
                parts = parts[2:]
            if not info.is_dir() and parts:
                target = packages.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))


def normal(name: str) -> str:
    """The one spelling of a project's name."""
    return re.sub(r"[-_.]+", "-", name).lower()
