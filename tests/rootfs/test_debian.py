"""Bases that debootstrap or mmdebstrap makes: once, from the host's mirror, with nothing of the host in them."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from aenv.base.errors import StartFailed
from aenv.isolation.rootfs.debian import certificates_layer, debian
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.build_run import run
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.rootfs.doing import FakeRun
from tests.system import require

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="bases are made by root")

# Makes what the real program makes, and says what it was called with.
_STAND_IN = """#!/bin/sh
echo "$0 $@" >> {log}
[ -e {fails} ] && {{ echo 'E: no mirror'; exit 1; }}
for word; do target=$last; last=$word; done
set -e
/bin/mkdir -p $target/etc/apt/sources.list.d $target/usr/bin $target/dev $target/var/log $target/run
echo host-name > $target/etc/hostname
echo 'nameserver 10.0.0.1' > $target/etc/resolv.conf
echo secret > $target/var/log/bootstrap.log
echo x > $target/usr/bin/su
/bin/chmod 4755 $target/usr/bin/su
/bin/mknod $target/dev/null c 1 3
"""
_RELEASE = 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'
_SOURCES = """Types: deb
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://user:word@private.test/debian
Suites: bookworm
Components: main
"""
_OTHERS = """deb http://others.test/node nodistro main
deb [arch=amd64] http://mirror.test/security bookworm-security main
"""


class Maker:
    """A host with one of the programs."""

    def __init__(self, folder: Path) -> None:
        self.host, self.bin, self.log = folder / "host", folder / "bin", folder / "log"
        self.fails, self.home = folder / "fails", folder / "home"
        for name, text in {
            "etc/os-release": _RELEASE,
            "etc/apt/sources.list.d/debian.sources": _SOURCES,
            "etc/apt/sources.list.d/others.list": _OTHERS,
        }.items():
            (self.host / name).parent.mkdir(parents=True, exist_ok=True)
            (self.host / name).write_text(text)
        self.bin.mkdir()
        (self.bin / "unshare").symlink_to(shutil.which("unshare") or "")
        self.said: list[str] = []

    def has(self, program: str) -> None:
        (self.bin / program).write_text(_STAND_IN.format(log=self.log, fails=self.fails))
        (self.bin / program).chmod(0o755)

    async def made(self) -> tuple[Path, str] | None:
        return await debian(self.home, self.said.append, self.host)


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    found = Maker(tmp_path)
    monkeypatch.setenv("PATH", str(found.bin))
    return found


@pytest.mark.parametrize("program", ["debootstrap", "mmdebstrap"])
async def test_a_base_is_made_once_and_holds_nothing_of_the_host(maker: Maker, program: str) -> None:
    maker.has(program)
    made = await maker.made()
    assert made is not None and made == await maker.made()
    root, words = made
    assert words == f"Debian GNU/Linux 12, made by {program}"
    (called,) = maker.log.read_text().splitlines()
    assert called.endswith("http://mirror.test/debian") and " bookworm " in called
    assert len(maker.said) == 1 and "mirror.test" in maker.said[0]
    assert (root / "etc/apt/sources.list").read_text() == (
        "deb http://mirror.test/security bookworm-security main\n"
        "deb http://mirror.test/debian bookworm main\n"
        "deb http://mirror.test/debian bookworm-updates main\n"
    )
    assert (root / "etc/hostname").read_text() == "instance\n" and (root / "etc/resolv.conf").read_text() == ""
    assert os.listdir(root / "dev") == os.listdir(root / "var/log") == []
    assert stat.S_IMODE((root / "usr/bin/su").stat().st_mode) == 0o755
    assert (root / "etc/dpkg/dpkg.cfg.d/00instance").read_text() == "force-unsafe-io\n"
    policy = root / "usr/sbin/policy-rc.d"
    assert policy.read_text().endswith("exit 101\n") and stat.S_IMODE(policy.stat().st_mode) == 0o755


def test_the_authorities_that_the_host_trusts_are_trusted_in_it(maker: Maker) -> None:
    for name, mode in {
        "etc/ssl/certs/ca-certificates.crt": 0o644,
        "usr/local/share/ca-certificates/own.crt": 0o644,
        "usr/local/share/ca-certificates/closed.crt": 0o600,
    }.items():
        (maker.host / name).parent.mkdir(parents=True, exist_ok=True)
        (maker.host / name).write_text(name)
        (maker.host / name).chmod(mode)
    layer = certificates_layer(maker.home, maker.host)
    found = sorted(str(path.relative_to(layer)) for path in layer.rglob("*") if path.is_file())
    assert found == ["etc/ssl/certs/ca-certificates.crt", "usr/local/share/ca-certificates/own.crt"]


async def test_without_the_program_or_the_mirror_none_is_made(maker: Maker) -> None:
    assert await maker.made() is None
    maker.has("debootstrap")
    (maker.host / "etc/apt/sources.list.d/debian.sources").unlink()
    assert await maker.made() is None and not maker.log.exists()


async def test_a_base_that_cannot_be_made_leaves_nothing_behind_and_is_tried_again(maker: Maker) -> None:
    maker.has("debootstrap")
    maker.fails.touch()
    with pytest.raises(StartFailed, match="no mirror"):
        await maker.made()
    assert not [name for name in os.listdir(maker.home / "roots") if not name.startswith(".lock")]
    maker.fails.unlink()
    assert await maker.made()


@pytest.mark.slow  # builds of two roots
async def test_sidecars_stand_on_it_and_the_host_stands_in_where_it_fails(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.has("debootstrap")
    if not Path("/etc/debian_version").exists():
        pytest.skip("the host is neither Debian nor Ubuntu")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "Dockerfile").write_text("FROM ubuntu:24.04\nRUN write /a 1\n")
    roots = RootfsResolver(maker.home, run=FakeRun(), makes_bases=True)
    root = await roots.sidecar(tmp_path / "task" / "Dockerfile")
    assert root.system == {} and "made by debootstrap stands for ubuntu:24.04" in root.notes[0]
    maker.fails.touch()
    said: list[str] = []
    root = await RootfsResolver(tmp_path / "other", run=FakeRun(), makes_bases=True).sidecar(
        tmp_path / "task" / "Dockerfile", said.append
    )
    assert "/usr" in root.system and any("no base could be made" in line for line in said)


@pytest.mark.long  # debootstrap fetches and installs a small Debian, and apt-get packages: two to four minutes
@pytest.mark.timeout(900)
async def test_packages_are_installed_reinstalled_and_upgraded_on_it(tmp_path: Path) -> None:
    """dpkg makes hard links to the files that it replaces, which only their owner may."""
    require("debootstrap", "debootstrap")
    home = tmp_path / "home"
    try:
        if await debian(home, lambda line: None) is None:
            pytest.skip("the host is neither Debian nor Ubuntu")
    except StartFailed as error:
        pytest.skip(f"no base can be made here: {error.message[-300:]}")
    (tmp_path / "Dockerfile").write_text(
        "FROM ubuntu:24.04\n"
        "RUN apt-get update\n"
        "RUN apt-get install -y --no-install-recommends hello && hello > /said\n"
        "RUN ls -i /bin/bash > /before && apt-get install -y --reinstall bash && ls -i /bin/bash > /after\n"
        "RUN apt-get upgrade -y && dpkg --audit > /wrong && apt-get check\n"
    )
    root = await RootfsResolver(home, run=run, makes_bases=True).sidecar(tmp_path / "Dockerfile")
    assert (_top(root, "said"), _top(root, "wrong")) == ("Hello, world!\n", "")
    assert _top(root, "before") != _top(root, "after")


def _top(root: Rootfs, name: str) -> str:
    """The text of a file of the uppermost layer that has it."""
    return next(path for layer in root.layers if (path := Path(layer, name)).is_file()).read_text()
