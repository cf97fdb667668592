"""The host's package database, for Dockerfiles that stand on the host root: `RUN apt-get install` works there.

It says which packages `/usr` has and where others come from. Passwords in the sources are not taken along.
"""

from __future__ import annotations

import re
from pathlib import Path

from .host_rootfs import HostEntry, copied, layer

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


def packages_layer(home: Path, host: Path = Path("/")) -> Path | None:
    """A layer for above the skeleton; None where the host has other packages than Debian's."""
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
