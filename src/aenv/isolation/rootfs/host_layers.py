"""Layers over the host root, for Dockerfiles that stand on it: its folders, its packages, and the runtime."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .host_rootfs import HostEntry, copied, layer

FOLDER = "/opt/aenv"
"""Where it is told, for PYTHONPATH."""
INSTALL = "pip install --no-cache-dir --find-links . -r requirements.txt"
"""The line of our own template. Instances get these packages as requirements, so it is left out there."""
_NAME = "aenvironment"
_STATUS = "var/lib/dpkg/status"
_COPIED = (
    # Not statoverride, which names groups of the host.
    *("var/lib/dpkg/status", "var/lib/dpkg/diversions", "var/lib/dpkg/arch"),
    *("var/lib/dpkg/info/*", "var/lib/dpkg/alternatives/*", "var/lib/dpkg/triggers/*"),
    *("etc/apt/sources.list", "etc/apt/sources.list.d/*.list", "etc/apt/sources.list.d/*.sources"),
    *("etc/apt/trusted.gpg.d/*", "etc/apt/keyrings/*", "etc/apt/preferences.d/*"),
    *("etc/dpkg/dpkg.cfg", "etc/dpkg/dpkg.cfg.d/*", "etc/dpkg/origins/*", "etc/debconf.conf", "etc/adduser.conf"),
)
_FOLDERS = (
    *("var/lib/dpkg/updates", "var/lib/dpkg/parts", "var/lib/apt/lists/partial", "var/log/apt"),
    *("var/cache/apt/archives/partial", "var/cache/debconf", "etc/apt/apt.conf.d", "etc/apt/preferences.d"),
)
_SETTINGS = 'APT::Sandbox::User "root";\n'  # an instance's root cannot become another user everywhere
_FORM = "1"  # another one when a layer's content is made in another way
_PASSWORD = re.compile(rb"://[^/\s]*@")


def folders_layer(home: Path, folder: Path) -> Path:
    """A layer for above this folder of the host, into whose folders `RUN` can write then.

    What is the host's own stays so: a file of it can be hidden or replaced in a layer, and not be taken over. The
    same would hold for its folders, and then nothing could be added to them. So a layer of empty folders like
    them, which are ours, lies in between.
    """
    found = sorted(_folders(str(folder)))  # a folder before what lies in it
    parts = (f"{mode:o} {path}" for path, mode in found)
    return layer(home, "folders", parts, lambda: {path: HostEntry(mode) for path, mode in found})


def _folders(top: str) -> Iterator[tuple[str, int]]:
    """Those that every user may look into; what others hold stays out of sight."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        # The host's package manager may be at work.
        with contextlib.suppress(FileNotFoundError), os.scandir(f"{top}/{path}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                    if mode & 0o5 == 0o5:
                        inner = f"{path}/{entry.name}" if path else entry.name
                        yield inner, mode & 0o1755
                        waiting.append(inner)


def packages_layer(home: Path, host: Path = Path("/")) -> Path | None:
    """The host's package database: `RUN apt-get install` works with it. None where packages are not Debian's.

    It says which packages `/usr` has and where others come from. Passwords in the sources are not taken along.
    """
    status = host / _STATUS
    if not status.is_file():
        return None
    sources = [
        path.read_bytes() for path in sorted((host / "etc/apt").glob("sources.list*/**/*")) if path.is_file()
    ]
    facts = f"{status.stat().st_mtime_ns} {status.stat().st_size}"
    return layer(home, "packages", [_FORM, facts, *sources], lambda: _entries(host))


def _entries(host: Path) -> dict[str, HostEntry]:
    entries = {name: HostEntry(0o755) for name in _FOLDERS}
    for pattern in _COPIED:
        for path in sorted(host.glob(pattern)):
            entries.update(copied(path, str(path.relative_to(host))))
    for name, entry in list(entries.items()):
        if isinstance(entry.content, bytes) and _PASSWORD.search(entry.content):
            del entries[name]
    entries["etc/apt/apt.conf.d/00instance"] = HostEntry(0o644, _SETTINGS.encode())
    return {**entries, **_users(host / "usr/share/base-passwd")}


def _users(masters: Path) -> dict[str, HostEntry]:
    """The users and groups that every Debian has: packages give files to them."""
    found = {}
    for name in ("passwd", "group"):
        if (master := masters / f"{name}.master").is_file():
            lines = master.read_text().replace(":*:", ":x:").replace(":/root:", ":/workspace:")
            found[f"etc/{name}"] = HostEntry(0o644, lines.encode())
    return found


def runtime_layer(home: Path) -> Path:
    """What pip is told about aenv: that it is installed.

    It is: instances bring it along. Without this, `RUN pip install -r requirements.txt` would fetch it, and all
    that it needs, from a package index; and nothing could be built without a network.
    """
    version = metadata.version(_NAME)
    told = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {version}\n"
    path = f"{FOLDER.lstrip('/')}/{_NAME}-{version}.dist-info/METADATA"
    return layer(home, "runtime", [told], lambda: {path: HostEntry(0o644, told.encode())})
