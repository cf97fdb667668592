"""Chromium with the libraries and a font that it needs, from the archive of this host's Debian, without root.

apt-get does it, with folders of ours in place of the system's: it fetches the archive's signed index, chooses the
packages and compares each with the index. What is unpacked runs where it lies; only libc is the host's own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base import settings
from ...base.errors import NetworkError, Unsupported
from .download import OnBytes

_WANTED = ("chromium", "fonts-dejavu-core")
_NEEDED = re.compile(r"lib|zlib1g|chromium|fonts-")
# What Chromium never loads without a screen, what only other programs need, and what must be the host's own.
_LEFT_OUT = re.compile(r"libc6|libc-|libgl1-mesa|libllvm|libz3|libperl|lib.*-perl$|libpam-|libsystemd-shared")
_KEPT = ("lib", "usr/lib", "usr/share/fonts")
_AT_ONCE = 12  # packages of one command: apt-get takes half a second to begin
_LAST_LINES = 5
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>/tmp/fontconfig</cachedir>
</fontconfig>
"""
_OURS = """
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Update::Error-Mode "any";
APT::Sandbox::User "{user}";
Debug::NoLocking "true";
Dir::State "{work}/state";
Dir::State::status "{work}/status";
Dir::Cache "{work}/cache";
"""


@dataclass(frozen=True)
class Package:
    """A package of the archive, at one version."""

    name: str
    version: str
    size: int
    file: str


class Archive:
    """The archive that this host's apt knows. What it fetches is kept in `work`."""

    def __init__(self, work: Path) -> None:
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise Unsupported(
                "Chromium is fetched by apt-get, which this host does not have; install Chromium with the host's "
                "own package manager, or copy a folder that was pulled elsewhere, with --from DIR"
            )
        self._debs = work / "debs"
        self._configuration = work / "apt.conf"
        _configure(work, self._configuration)

    def plan(self) -> list[Package]:
        """The packages to fetch, as the archive has them now."""
        self._run("apt-get", "update", "-q")
        options = ("--print-uris", "-qq", "-y", "--no-install-recommends")
        return needed(self._run("apt-get", *options, "install", *_WANTED))

    def fetch(self, packages: Sequence[Package], show: OnBytes) -> None:
        """Fetch what is not here yet."""
        missing = [package for package in packages if not self._has(package)]
        done = sum(package.size for package in packages) - sum(package.size for package in missing)
        for first in range(0, len(missing), _AT_ONCE):
            show(done)
            some = missing[first : first + _AT_ONCE]
            self._run("apt-get", "download", "-q", *(f"{each.name}={each.version}" for each in some))
            done += sum(package.size for package in some)
        show(done)

    def unpack(self, packages: Sequence[Package], unpacked: Path, tree: Path) -> None:
        """Lay out in `tree` what of them is needed to run."""
        shutil.rmtree(unpacked, ignore_errors=True)
        for package in packages:
            self._run("dpkg-deb", "-x", str(self._debs / package.file), str(unpacked))
        shutil.rmtree(tree, ignore_errors=True)
        for name in _KEPT:
            if (unpacked / name).is_dir():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (unpacked / name).rename(tree / name)
        remove_loose_links(tree)
        (tree / "fonts.conf").write_text(_FONTS)

    def _has(self, package: Package) -> bool:
        # apt-get gives a file its name when it has compared it with the index.
        file = self._debs / package.file
        return file.is_file() and file.stat().st_size == package.size

    def _run(self, *command: str) -> str:
        environment = {**settings.variables(), "APT_CONFIG": str(self._configuration), "LC_ALL": "C"}
        done = subprocess.run(
            command, cwd=self._debs, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            words = "; ".join(line for line in (done.stderr or done.stdout).splitlines()[-_LAST_LINES:] if line)
            raise NetworkError(f"{' '.join(command[:2])} failed: {words}")
        return done.stdout


def needed(printed: str) -> list[Package]:
    """The packages in what `apt-get --print-uris` has printed, without those that Chromium does without."""
    lines = (re.match(r"'[^']+' ((\S+?)_(\S+)_\w+\.deb) (\d+) ", line) for line in printed.splitlines())
    found = [
        Package(line[2], line[3].replace("%3a", ":"), int(line[4]), line[1])
        for line in lines
        if line and _NEEDED.match(line[2]) and not _LEFT_OUT.match(line[2])
    ]
    if not any(package.name == _WANTED[0] for package in found):
        raise Unsupported(f"the archives of this host have no package {_WANTED[0]!r}; it is one of Debian's")
    return found


def remove_loose_links(tree: Path) -> None:
    """Remove the links that lead to nothing in the folder: to what is left out, or to a place of the host."""
    while loose := [path for path in tree.rglob("*") if path.is_symlink() and not _leads_inside(path, tree)]:
        for path in loose:
            path.unlink()


def _leads_inside(link: Path, tree: Path) -> bool:
    target = os.readlink(link)
    place = Path(os.path.normpath(link.parent / target))
    return not os.path.isabs(target) and place.is_relative_to(tree) and place.exists()


def _configure(work: Path, file: Path) -> None:
    """Let apt-get read the host's settings, with proxies and all, and ours behind them."""
    for folder in ("state/lists/partial", "cache/archives/partial", "debs", "parts"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()  # nothing counts as installed: what is fetched is the same whatever the host has
    host = Path("/etc/apt")
    for source in (*sorted(host.glob("apt.conf.d/*")), *host.glob("apt.conf")):
        if source.is_file() and os.access(source, os.R_OK):
            shutil.copyfile(source, work / "parts" / f"10{source.name}")
    user = "root" if os.geteuid() == 0 else ""
    (work / "parts" / "99aenv.conf").write_text(_OURS.format(work=work, user=user))
    file.write_text(f'Dir::Etc::parts "{work}/parts";\nDir::Etc::main "/dev/null";\n')
