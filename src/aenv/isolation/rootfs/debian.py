"""A small Debian or Ubuntu of its own, made once by debootstrap or mmdebstrap, for builds to stand on.

Like the host in distribution and version, and from the host's own mirror. Unlike the host's own system, packages
in it can be upgraded, none of the host's stand in the way, and nothing of the host's is in view.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import StartFailed
from ..sandbox.build_run import take_rights
from ..sandbox.removal import remove
from . import folder_cache
from .host_rootfs import HostEntry, copied, layer, os_release, told
from .images import OnLine, run_program

_PROGRAMS = ("mmdebstrap", "debootstrap")
_FORM = "2"  # another one when a base is made in another way
_INCLUDED = "ca-certificates"
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_LONGEST = 1800.0  # seconds
_SETTINGS = 'APT::Sandbox::User "root";\n'  # as in `host_layers.py`
_NO_SERVERS = "usr/sbin/policy-rc.d"
_PASSWORD = re.compile(r"://[^/\s]*@")
_LINE = re.compile(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.+)")


@dataclass(frozen=True)
class PackageSource:
    mirror: str
    suite: str
    components: str


async def debian(home: Path, on_line: OnLine, host: Path = Path("/")) -> tuple[Path, str] | None:
    """The base, made when it is missing, and what it is in words; None where the host cannot make one.

    StartFailed when it cannot be made now, for want of a network, say.
    """
    program = next(filter(shutil.which, _PROGRAMS), None)
    said = os_release(host)
    suite = said.get("VERSION_CODENAME", "")
    sources = [source for source in _sources(host) if source.suite.startswith(suite)] if suite else []
    main = next((source for source in sources if source.suite == suite), None)
    if program is None or main is None or os.geteuid() != 0:
        return None
    words = f"{said.get('NAME', 'Linux')} {said.get('VERSION_ID', suite)}, made by {program}"
    place = folder_cache.place(home) / f"base-{folder_cache.digest([_FORM, *map(str, sources)])[:32]}"
    async with folder_cache.locked(place):
        if not folder_cache.use(place):
            on_line(f"making a base with {program} from {main.mirror} ({suite}), once; it takes some minutes")
            with folder_cache.new(place) as work:
                root = work / "root"
                try:
                    async with asyncio.timeout(_LONGEST):
                        await run_program(_command(program, main, root), None)
                except TimeoutError:
                    raise StartFailed(f"{program} did not end within {_LONGEST / 60:g} minutes") from None
                await asyncio.to_thread(_dress, root, sources)
    return place / "root", words


def certificates_layer(home: Path, host: Path = Path("/")) -> Path:
    """A layer with the authorities that the host trusts: behind a proxy that reads TLS, builds need that one."""
    entries: dict[str, HostEntry] = {}
    own = sorted((host / "usr/local/share/ca-certificates").glob("**/*.crt"))
    for path in (host / _BUNDLE, *own):
        if path.is_file():
            entries.update(copied(path, str(path.relative_to(host))))
    return layer(home, "certificates", told(entries), lambda: entries)


def _command(program: str, source: PackageSource, root: Path) -> list[str]:
    # In namespaces of its own: what it mounts and starts goes with it, also when it is killed.
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    is_multi = program == "mmdebstrap"
    options = ["--quiet", "--mode=root", "--variant=apt"] if is_multi else ["--variant=minbase"]
    return [*apart, program, *options, f"--include={_INCLUDED}", source.suite, str(root), source.mirror]


def _dress(root: Path, sources: list[PackageSource]) -> None:
    """Make it a base as an image is one: no devices, no borrowed rights, nothing that says where it was made."""
    for folder in ("dev", "proc", "sys", "run", "tmp", "var/cache/apt/archives", "var/lib/apt/lists", "var/log"):
        for path in (root / folder).iterdir() if (root / folder).is_dir() else ():
            remove(str(path))
    for path in (root / "etc/apt/sources.list.d").glob("*") if (root / "etc/apt").is_dir() else ():
        remove(str(path))
    lines = [f"deb {source.mirror} {source.suite} {source.components}\n" for source in sources]
    files = {
        "etc/apt/sources.list": "".join(lines),
        "etc/apt/apt.conf.d/00instance": _SETTINGS,
        # As images have it: what breaks off is made anew, so that nothing needs to be on the disk at once; and
        # packages start no servers when they are installed.
        "etc/dpkg/dpkg.cfg.d/00instance": "force-unsafe-io\n",
        _NO_SERVERS: "#!/bin/sh\nexit 101\n",
        "etc/hostname": "instance\n",
        "etc/hosts": "127.0.0.1 localhost instance\n::1 localhost ip6-localhost ip6-loopback\n",
        "etc/resolv.conf": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        remove(str(root / name))
        (root / name).write_text(text)
        (root / name).chmod(0o755 if name == _NO_SERVERS else 0o644)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True, exist_ok=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True, exist_ok=True)
    take_rights([root])


def _sources(host: Path) -> Iterator[PackageSource]:
    """What the host's apt reads, in both of its forms; none with a password."""
    folder = host / "etc/apt"
    for path in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))):
        for line in _text(path).splitlines():
            if (match := _LINE.match(line.strip())) and not _PASSWORD.search(match[1]):
                yield PackageSource(match[1], match[2], match[3].partition("#")[0].strip())
    for path in sorted((folder / "sources.list.d").glob("*.sources")):
        for block in re.split(r"\n\s*\n", _text(path)):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", block, re.MULTILINE))
            if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes") == "no":
                continue
            for mirror in fields.get("URIs", "").split():
                for suite in fields.get("Suites", "").split() if not _PASSWORD.search(mirror) else ():
                    yield PackageSource(mirror, suite, fields.get("Components", ""))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
