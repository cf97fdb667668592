"""Commands that make a layer of a root: what they may, what is kept of them, and that nothing else is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest, StartFailed
from aenv.isolation import cgroups
from aenv.isolation.rootfs.merged_view import MergedView
from aenv.isolation.sandbox.build_run import BuildLimits, run
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.ordinary import OrdinaryUser, ordinary_user
from tests.saved_images import debian
from tests.system import require

pytestmark = pytest.mark.slow

_NAMES = ("sh", "cat", "chmod", "chown", "echo", "grep", "id", "ls", "ln", "mkdir", "mknod", "mount", "mv")
_NAMES += ("rm", "rmdir", "sleep", "stat", "tail", "touch", "unshare", "wc", "chroot", "kill", "ip", "hostname")


def fill(place: Path) -> Path:
    """A root with a shell and a few files."""
    for name in ("bin", "etc", "old", "old/deep", "usr"):
        (place / name).mkdir(parents=True)
    program = place / "bin/busybox"
    program.write_bytes(Path(require("busybox", "busybox-static")).read_bytes())
    program.chmod(0o755)
    for name in _NAMES:
        (place / "bin" / name).symlink_to("busybox")
    (place / "old/file").write_text("old")
    (place / "old/deep/file").write_text("deep")
    (place / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\napp:x:33:44::/:/bin/sh\n")
    (place / "etc/group").write_text("root:x:0:\napp:x:44:\nmore:x:55:app,other\n")
    return place


class Box:
    """A root, and commands in it."""

    def __init__(self, place: Path) -> None:
        self.root = Rootfs("box", (fill(place / "box"),))
        self.upper = place / "upper"
        self.lines: list[str] = []

    async def sh(self, script: str, **more: Any) -> int:
        asked = {
            "variables": {"PATH": "/bin"},
            "folder": "/",
            "network": False,
            "on_line": self.lines.append,
            **more,
        }
        self.upper.mkdir(exist_ok=True)
        return await run(self.root, ["/bin/sh", "-c", script], upper=self.upper, **asked)

    @property
    def result(self) -> MergedView:
        return MergedView(Rootfs("result", (self.upper / "root", *self.root.layers)))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


async def test_what_a_command_writes_and_removes_is_kept_and_the_root_is_not_changed(box: Box) -> None:
    assert await box.sh("echo new > /new; rm -r /old; mkdir /old; echo 2 > /old/file; mv /etc/group /etc/g") == 0
    assert (box.result.read("/new"), box.result.read("/old/file")) == (b"new\n", b"2\n")
    assert box.result.names("/old") == ["file"] and box.result.names("/etc") == ["g", "passwd"]
    assert (box.root.layers[0] / "old/file").read_text() == "old"
    assert sorted(os.listdir(box.upper)) == ["root", "work"]
    # The places for mounts are no part of it.
    assert sorted(os.listdir(box.upper / "root")) == ["etc", "new", "old"]


async def test_a_second_command_stands_on_what_the_first_has_left(box: Box, tmp_path: Path) -> None:
    await box.sh("rm /old/file; touch /new")
    box.root = Rootfs("box", (box.upper / "root", *box.root.layers))
    box.upper = tmp_path / "second"
    assert await box.sh("ls / /old; test ! -e /old/file && touch /old/file") == 0
    assert "new" in box.lines and box.result.read("/old/file") == b""


async def test_the_exit_status_and_what_was_printed_are_told(box: Box) -> None:
    assert await box.sh("echo one; echo two >&2; echo three > /dev/stderr; echo -n end; exit 7") == 7
    assert box.lines == ["one", "two", "three", "end"]
    assert await box.sh("kill -9 $$") == 137
    assert await box.sh("x", folder="/nowhere") == 127 and box.lines[-1] == "/nowhere: not found"


async def test_variables_and_folder_are_those_that_were_given(box: Box) -> None:
    os.environ["SECRET_OF_THE_HOST"] = "x"
    try:
        await box.sh("echo $PWD $A; cat /proc/self/environ | grep -c SECRET", folder="/old", variables={"A": "1"})
    finally:
        del os.environ["SECRET_OF_THE_HOST"]
    assert box.lines[0] == "/old 1" and box.lines[-1] != "1"


async def test_lines_come_while_the_command_runs_and_cancelling_ends_it(box: Box) -> None:
    mark = str(secrets.randbelow(10**8) + 10**8)
    task: asyncio.Task[int]

    def listen(line: str) -> None:
        assert processes(mark)
        task.cancel()

    task = asyncio.create_task(box.sh(f"sleep {mark} & echo begun; sleep {mark}", on_line=listen))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes(mark) == []


async def test_what_a_command_leaves_in_the_background_ends_with_it(box: Box) -> None:
    mark = str(secrets.randbelow(10**8) + 10**8)
    assert await box.sh(f"sleep {mark} > /dev/null 2>&1 & echo begun") == 0
    assert box.lines == ["begun"] and processes(mark) == []


_CALLER = """
import asyncio, sys
from pathlib import Path
from aenv.isolation.sandbox.rootfs import Rootfs
from aenv.isolation.sandbox.build_run import BuildLimits, run
asyncio.run(run(Rootfs("box", (Path(sys.argv[1]),)), ["/bin/sh", "-c", sys.argv[3]], upper=Path(sys.argv[2]),
    variables={"PATH": "/bin"}, folder="/", network=False, user=sys.argv[4],
    on_line=lambda line: print(line, flush=True)))
"""


async def test_when_its_caller_is_killed_the_command_ends(box: Box) -> None:
    mark = str(secrets.randbelow(10**8) + 10**8)
    box.upper.mkdir()
    places = map(str, (box.root.layers[0], box.upper))
    command = [sys.executable, "-c", _CALLER, *places, f"echo begun; sleep {mark}", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as caller:
        assert caller.stdout
        assert await asyncio.to_thread(caller.stdout.readline) == b"begun\n"
        handles = [os.pidfd_open(pid) for pid in processes(mark)]
        assert handles
        caller.kill()
    for handle in handles:
        assert await asyncio.to_thread(select.select, [handle], [], [], 4) == ([handle], [], [])
        os.close(handle)


async def test_without_network_there_is_only_loopback(box: Box) -> None:
    await box.sh("ip -o link | wc -l; ip -o addr | grep -c 127.0.0.1; hostname; ls /etc")
    assert box.lines == ["1", "1", "build", "group", "passwd"]


async def test_with_network_names_are_looked_up_as_on_the_host_and_that_is_not_kept(box: Box) -> None:
    (box.root.layers[0] / "etc/resolv.conf").symlink_to("/old/file")
    assert await box.sh("cat /etc/resolv.conf; touch /etc/x", network=True) == 0
    assert box.lines == Path("/etc/resolv.conf").read_text().splitlines()
    assert os.listdir(box.upper / "root/etc") == ["x"]
    assert (box.root.layers[0] / "old/file").read_text() == "old"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id alone")
@pytest.mark.parametrize(
    ("user", "ids"),
    [("app", "33 44 44 55"), ("33", "33 44 44 55"), ("app:root", "33 0 0"), ("7:8", "7 8 8"), ("9", "9 0 0")],
)
async def test_users_are_those_of_the_root(box: Box, user: str, ids: str) -> None:
    assert await box.sh("echo $(id -u) $(id -g) $(id -G); echo x > /dev/stdout", user=user) == 0
    assert box.lines == [ids, "x"]


async def test_a_user_that_the_root_does_not_have_is_named(box: Box) -> None:
    assert await box.sh("id", user="who") == 126
    assert box.lines == ["there is no user 'who' in /etc/passwd; make it with RUN useradd, or write its number"]


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id alone")
async def test_owners_are_kept_and_nothing_lends_the_rights_of_an_owner(box: Box) -> None:
    script = (
        "touch /a /b; chown 33:44 /a; chmod 4755 /b; mkdir /c; chmod 2770 /c; chown 65535 /c; stat -c %u:%g /a"
    )
    assert await box.sh(script) == 0 and box.lines == ["33:44"]

    def facts(name: str) -> tuple[int, int, int]:
        found = (box.upper / "root" / name).lstat()
        return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)

    assert facts("a") == (33, 44, 0o644)
    assert facts("b") == (0, 0, 0o755)
    assert facts("c") == (65535, 0, 0o770)


@pytest.mark.skipif(os.geteuid() != 0, reason="the files of an ordinary user lend nobody else's rights")
async def test_folders_too_deep_to_look_into_are_refused(box: Box) -> None:
    name = "d" * 250
    script = f"i=0; while [ $i -lt 20 ]; do mkdir {name}; cd {name}; i=$((i+1)); done; touch x; chmod 4755 x"
    with pytest.raises(InvalidRequest, match="cannot be kept: file name too long"):
        await box.sh(script)


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs x /old",
        "mount -o remount,rw /proc/sys",
        "unshare -U true",
        "unshare -m true",
        "mknod /null c 1 3",
        "mknod /disk b 8 0",
        "echo 1 > /proc/sys/kernel/pid_max",
        "echo b > /proc/sysrq-trigger && grep -q . /proc/sysrq-trigger",
        "hostname other",
        "cat /proc/1/environ | grep PYTHONPATH",
        "ls /kept /layers /own /work",
        "ls /root/.pyenv /home/*",
    ],
)
async def test_a_command_is_as_shut_in_as_an_instance(box: Box, attempt: str) -> None:
    assert await box.sh(attempt) != 0, box.lines


async def test_a_root_for_scripts_may_be_changed_and_leads_nowhere(box: Box) -> None:
    script = (
        "mkdir /in /in/bin; cat /bin/busybox > /in/bin/sh; chmod 755 /in/bin/sh; chroot /in /bin/sh -c 'echo /*'"
    )
    assert await box.sh(script) == 0 and box.lines == ["/bin"]
    box.lines.clear()
    await box.sh("chroot / /bin/sh -c 'cd ../../..; ls; ls /proc/self/root/'")
    assert set(box.lines) == {"bin", "dev", "etc", "old", "proc", "sys", "usr", "in"}


async def test_links_of_a_root_lead_no_mount_out_of_it(box: Box, tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", box.root.layers[0]
    outside.mkdir()
    for name in ("proc", "dev", "sys", "kept", "own"):
        (root / name).symlink_to(outside)
    (root / "etc/resolv.conf").symlink_to(outside / "file")
    assert await box.sh("ls /proc/self/fd /dev/null", network=True) == 0
    assert not any(outside.iterdir())


async def test_a_fork_bomb_ends_at_a_limit(box: Box) -> None:
    status = await box.sh("n=0; while [ $n -lt 6000 ]; do sleep 1000 & n=$((n+1)); done")
    assert status != 0 and "fork" in " ".join(box.lines)


async def test_endless_lines_come_in_parts(box: Box) -> None:
    await box.sh("i=0; while [ $i -lt 6000 ]; do echo -n 0123456789; i=$((i+1)); done")
    assert "".join(box.lines) == "0123456789" * 6000 and max(map(len, box.lines)) <= 16 << 10


async def test_a_command_that_is_too_long_is_refused(box: Box) -> None:
    with pytest.raises(InvalidRequest, match="too long"):
        await box.sh("x" * (2 << 20))


# As an ordinary user


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user() as user:
        yield user


@pytest.fixture
def theirs(user: OrdinaryUser) -> Callable[..., list[str]]:
    """`theirs(script)` runs it as an ordinary user: the lines, and what the layer then has, as the last one."""
    place = user.make_folder("box")
    fill(place / "box")
    (place / "upper").mkdir()
    user.give(place)

    def do(script: str, as_user: str = "") -> list[str]:
        command = [str(user.python), "-c", _CALLER, str(place / "box"), str(place / "upper"), script, as_user]
        done = subprocess.run(user.command(*command), capture_output=True, text=True)
        assert done.stderr == ""
        return [*done.stdout.splitlines(), *sorted(os.listdir(place / "upper/root"))]

    return do


def test_an_ordinary_user_can_write_and_remove(theirs: Callable[..., list[str]]) -> None:
    assert theirs("id -u; touch /new; rm -r /old; ls /old 2>&1 | wc -l") == ["0", "1", "new", "old"]


def test_the_files_of_an_ordinary_user_stay_theirs_and_nobody_can_become_another(
    theirs: Callable[..., list[str]],
) -> None:
    assert theirs("touch /a; chown 33:44 /a && stat -c %u:%g /a") == ["0:0", "a"]
    said = theirs("echo setgroups: not permitted; exit 1")
    reason = "who started the gateway is an ordinary user"
    assert said[1].startswith(f"no command can become another user here: {reason}")


def test_users_of_an_ordinary_user_are_all_the_same(theirs: Callable[..., list[str]]) -> None:
    said = theirs("id -u", "app")
    assert said == [
        "USER app has no effect: who started the gateway is an ordinary user, and has one id alone",
        "0",
    ]


# With a real system


@pytest.mark.long  # debootstrap fetches and installs a small Debian, and apt-get packages
@pytest.mark.timeout(400)
async def test_packages_of_debian_can_be_installed(tmp_path: Path) -> None:
    root = Rootfs("debian", (debian(tmp_path / "debian"),))
    lines: list[str] = []
    status = await run(
        root,
        ["/bin/sh", "-c", "apt-get update && apt-get install -y --no-install-recommends cowsay && useradd -m app"],
        upper=tmp_path / "upper",
        variables={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
        folder="/",
        network=True,
        on_line=lines.append,
    )
    assert status == 0, lines[-20:]
    view = MergedView(Rootfs("result", (tmp_path / "upper/root", *root.layers)))
    assert b"Package: cowsay" in (view.read("/var/lib/dpkg/status") or b"")
    home = view.find("/home/app")
    assert home is not None and home.stat().st_uid == 1000


def processes(mark: str) -> list[int]:
    """The processes that have this word on their command line, but for who called for them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes()
            if mark.encode() in line and b"import asyncio" not in line:
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def groups() -> Iterator[cgroups.Cgroups]:
    with contextlib.closing(cgroups.find(f"aenv-test-{secrets.token_hex(4)}")) as found:
        if missing := {"memory", "pids"} - {*found.enforced}:
            pytest.skip(f"no limits here: {missing}")
        yield found


async def test_a_command_has_the_limits_that_it_is_given(box: Box, groups: cgroups.Cgroups) -> None:
    held = BuildLimits(groups, memory_bytes=64 << 20, pids=20)
    assert await box.sh("echo fine > /made", held=held) == 0 and box.result.read("/made") == b"fine\n"
    # One line of a text that grows in memory, and more processes than are allowed.
    assert (
        await box.sh("tail -c 200000000 /dev/zero | wc -c; x=$(tail -c 300m </dev/zero); exit 1", held=held) != 0
    )
    assert any("of memory, which is the limit" in line for line in box.lines), box.lines
    many = "for n in 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5; do sleep 100 & done; exit 1"
    assert await box.sh(many, held=held) != 0
    assert any("can't fork" in line for line in box.lines), box.lines
    assert groups.leftovers() == []


async def test_a_command_that_takes_too_long_is_ended(box: Box, groups: cgroups.Cgroups) -> None:
    with pytest.raises(StartFailed, match="did not end within 0"):
        await box.sh("sleep 1000", held=BuildLimits(groups, seconds=0.1))
    assert groups.leftovers() == []
