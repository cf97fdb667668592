"""The host root: the host's own system folders, with nothing private in view.

`/usr` is the host's; the rest is a skeleton that is written here: empty folders, and an `/etc` of a few files that
any program may need and that say nothing about the host's users, services or secrets.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..sandbox.rootfs import Rootfs
from . import folder_cache

# Those that are links into /usr on most hosts, and folders of their own on some.
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = (
    *("data", "dev", "environment", "etc", "home", "mnt", "opt", "proc", "root", "run", "run/lock", "srv", "sys"),
    *("usr", "var", "var/cache", "var/lib", "var/local", "var/log", "var/mail", "var/opt", "var/spool"),
    "workspace",
)
_OPEN_FOLDERS = ("run/shm", "tmp", "var/tmp")
_LINKS = {"etc/mtab": "/proc/self/mounts", "var/run": "/run", "var/lock": "/run/lock"}

# Names below /etc. Left out on purpose: whatever people write into (profile, gitconfig, pip.conf, apt, ssh, ...),
# since passwords are found there.
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d/*.conf", "os-release", "debian_version"),
    *("ssl/openssl.cnf", "ssl/certs/ca-certificates.crt", "ssl/certs/java/cacerts", "ca-certificates.conf"),
    *("timezone", "locale.gen", "locale.alias"),
    *("services", "protocols", "rpc", "networks", "ethertypes", "mime.types", "magic", "magic.mime"),
    *("gai.conf", "host.conf", "inputrc", "shells", "terminfo/*", "fonts/**/*"),
    *("perl/**/*", "python3/**/*", "python3.*/**/*", "java-*-openjdk/**/*"),
)
# Of these only the links: a certificate of the host's own would name it.
_ETC_LINKS = ("alternatives/*", "ssl/certs/*")
_WRITTEN = {
    "passwd": "root:x:0:0:root:/workspace:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ndaemon:x:1:\nadm:x:4:\ntty:x:5:\nmail:x:8:\nshadow:x:42:\nutmp:x:43:\nstaff:x:50:\n"
    "users:x:100:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost instance\n::1 localhost ip6-localhost ip6-loopback\n",
    "hostname": "instance\n",
    "resolv.conf": "",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
    "protocols: files\nservices: files\nethers: files\nrpc: files\n",
    "profile": 'export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"\n'
    '[ -z "$BASH_VERSION" ] || . /etc/bash.bashrc\n',
    "bash.bashrc": "[ -z \"$PS1\" ] || PS1='\\u@\\h:\\w\\$ '\n",
}
_MOST_BYTES = 16 << 20  # of one file


@dataclass(frozen=True)
class HostEntry:
    """One file (its content), link (its target) or folder (None) to be made."""

    mode: int
    content: bytes | str | None = None


def host_root(home: Path, host: Path = Path("/")) -> Rootfs:
    """The host's own system as a root; its skeleton is made when it is missing, or when the host has changed."""
    entries = dict(_skeleton(host))
    skeleton = layer(home, "host", told(entries), lambda: entries)
    own = {f"/{name}": (host / name,) for name in _MERGED if _is_folder(host / name)}
    return Rootfs("host", (skeleton,), {"/usr": (host / "usr",), **own})


def layer(
    home: Path, kind: str, parts: Iterable[str | bytes], entries: Callable[[], Mapping[str, HostEntry]]
) -> Path:
    """A layer that holds these entries; made once for the same `parts`, which say what they come from."""
    place = folder_cache.place(home) / f"{kind}-{folder_cache.digest(parts)[:32]}"
    if not folder_cache.use(place):
        with folder_cache.new(place) as folder:
            write(folder, entries())
    return place


def told(entries: Mapping[str, HostEntry]) -> Iterator[str]:
    """All that is in a layer, for its key."""
    return (f"{path} {entry.mode:o} {entry.content!r}" for path, entry in sorted(entries.items()))


def description(host: Path = Path("/")) -> str:
    """What the host's system calls itself, for people: "Debian GNU/Linux 12"."""
    said = os_release(host)
    return " ".join(part for part in (said.get("NAME", "Linux"), said.get("VERSION_ID", "")) if part)


def os_release(host: Path = Path("/")) -> dict[str, str]:
    """What the file of that name says."""
    for path in (host / "etc/os-release", host / "usr/lib/os-release"):
        if path.is_file():
            lines = (line.partition("=") for line in path.read_text(errors="replace").splitlines())
            return {name: value.strip("\"'") for name, _, value in lines}
    return {}


def _skeleton(host: Path) -> Iterator[tuple[str, HostEntry]]:
    """Paths below `/`; of two with the same path, the later counts."""
    yield from ((name, HostEntry(0o755)) for name in _FOLDERS)
    yield from ((name, HostEntry(0o1777)) for name in _OPEN_FOLDERS)
    for name in _MERGED:
        if (host / name).is_symlink():
            yield name, HostEntry(0o777, f"usr/{name}")
        elif _is_folder(host / name):
            yield name, HostEntry(0o755)
    for pattern in _ETC + _ETC_LINKS:
        for path in sorted((host / "etc").glob(pattern)):
            if pattern in _ETC or path.is_symlink():
                yield from copied(path, str(path.relative_to(host)))
    yield from _zone(host / "etc/localtime")
    yield from ((path, HostEntry(0o777, target)) for path, target in _LINKS.items())
    yield from ((f"etc/{name}", HostEntry(0o644, text.encode())) for name, text in _WRITTEN.items())


def copied(path: Path, name: str) -> Iterator[tuple[str, HostEntry]]:
    """The host's file or link, if every user may read it and only its owner may change it; else nothing."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        yield name, HostEntry(0o777, os.readlink(path))
    elif stat.S_ISREG(found.st_mode) and _is_public(found):
        yield name, HostEntry(found.st_mode & 0o755, path.read_bytes())


def _zone(path: Path) -> Iterator[tuple[str, HostEntry]]:
    """The time zone: a link into /usr remains one, since programs read the zone's name from it."""
    if path.is_symlink() and "/usr/share/zoneinfo/" in (target := os.readlink(path)):
        yield "etc/localtime", HostEntry(0o777, target)
    elif path.is_file() and path.read_bytes().startswith(b"TZif"):
        yield "etc/localtime", HostEntry(0o644, path.read_bytes())


def _is_public(found: os.stat_result) -> bool:
    readable, changed_by_others = found.st_mode & stat.S_IROTH, found.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
    return bool(readable) and not changed_by_others and found.st_size <= _MOST_BYTES


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def write(folder: Path, entries: Mapping[str, HostEntry]) -> None:
    """Make them. Paths are texts here: a thousand small files take three times as long with `Path`."""
    known = {""}
    for name, entry in sorted(entries.items()):
        _make_folders(folder, os.path.dirname(name), known)
        path = f"{folder}/{name}"
        if isinstance(entry.content, str):
            os.symlink(entry.content, path)
            continue
        if entry.content is None:
            os.mkdir(path)
        else:
            with open(path, "xb") as file:
                file.write(entry.content)
        os.chmod(path, entry.mode)  # whatever the umask is


def _make_folders(folder: Path, name: str, known: set[str]) -> None:
    """The folder `name` and those above it, unless they are `known` to be there."""
    if name in known:
        return
    _make_folders(folder, os.path.dirname(name), known)
    path = f"{folder}/{name}"
    if not os.path.isdir(path):
        os.mkdir(path)
        os.chmod(path, 0o755)
    known.add(name)
