"""What a host supports: found by trying, also where it is forbidden, with the line that allows it."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aenv.isolation.sandbox import probe, refusals

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can set up a host that forbids it")

SOURCES = Path(probe.__file__).parents[3]
# As a program that a user starts: who only changes ids may not write to their own /proc.
ORDINARY = """
import os
from aenv.isolation.sandbox import system
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
system.prctl(system.PR_SET_DUMPABLE, 1)
"""
NO_MORE_NAMESPACES = """
from aenv.isolation.sandbox import namespaces
namespaces.enter(namespaces.user_namespace().descriptor)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
"""
COVERED_PROC = """
from aenv.isolation.sandbox import system
system.unshare("mount")
system.mount(None, "/", None, system.MS_REC | system.MS_PRIVATE)
system.mount("/dev/null", "/proc/version", None, system.MS_BIND)
"""
# A filter that answers "not permitted" to unshare, as those of containers do.
FILTER = f"""
import ctypes, struct
from aenv.isolation.sandbox import system
def line(code, yes, no, value): return struct.pack("=HBBI", code, yes, no, value)
unshare = {272 if platform.machine() == "x86_64" else 97}
lines = line(0x20, 0, 0, 0) + line(0x15, 0, 1, unshare) + line(6, 0, 0, 0x50001) + line(6, 0, 0, 0x7FFF0000)
held = ctypes.create_string_buffer(lines, len(lines))
program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", 4, ctypes.addressof(held)))
system.prctl(38, 1)
system.prctl(22, 2, ctypes.addressof(program))
"""


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process, zombie or mount more than before."""
    mounts = Path("/proc/self/mountinfo").read_text()
    yield
    assert psutil.Process().children() == []
    assert Path("/proc/self/mountinfo").read_text() == mounts


def run(code: str, ask: str = "probe.missing_isolation()") -> str:
    """What a fresh process is told after it has run the code."""
    before = f"import sys; sys.path[:0] = [{str(SOURCES)!r}]\nfrom aenv.isolation.sandbox import selftest, probe\n"
    command = [sys.executable, "-I", "-S", "-c", f"{before}{code}\nprint({ask})"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def by_name(checks: list[probe.Check]) -> dict[str, probe.Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc in which nothing forbids anything, for an ordinary user."""
    for folder in ("self", "sys/kernel", "sys/user"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "self/status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\nSeccomp:\t0\n")
    (tmp_path / "self/mountinfo").write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /proc rw - proc proc rw\n"
    )
    (tmp_path / "sys/user/max_user_namespaces").write_text("1000\n")
    return tmp_path


def test_every_check_says_what_it_found_and_what_to_do(nothing_left: None) -> None:
    checks = probe.checks()
    assert len(by_name(checks)) == len(checks)
    for check in checks:
        assert check.found and "\n" not in check.found + check.fix
        assert check.fix or check.ok or check.name == "idmapped mounts", check
        assert not (check.ok and check.fix), check
    names = ("kernel", "user namespaces", "overlay in a user namespace", "landlock", "seccomp", "pidfd", "uv")
    assert set(names) <= set(by_name(checks))
    assert {"cgroup cpu", "cgroup memory", "cgroup pids", "cgroup freezer"} <= set(by_name(checks))


@as_root
def test_an_ordinary_user_is_asked_for_what_root_has_and_the_reverse() -> None:
    ask = "[(check.name, check.ok, check.fix) for check in probe.checks() if 'cgroup ' in check.name]"
    told = run(ORDINARY, ask)
    assert "('cgroup memory', False" in told and "run aenv serve" in told
    assert by_name(probe.checks())["idmapped mounts"].ok is not None
    assert "None" in run(ORDINARY, "[check.ok for check in probe.checks() if 'idmapped' in check.name]")


def test_the_attempts_agree_whether_forked_or_run_as_a_program(nothing_left: None) -> None:
    assert probe._by_fork() == probe._by_program()


def test_a_process_with_threads_asks_without_forking(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("forked with threads")

    monkeypatch.setattr(probe, "_by_fork", refuse)  # a deadlock after fork would be a matter of luck
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()
    try:
        probe._attempted.cache_clear()
        assert dict(probe._attempted())["user"] in (0, errno.EPERM, errno.ENOSPC, errno.EACCES)
    finally:
        release.set()
        other.join()


@as_root
@pytest.mark.parametrize("who", ["", ORDINARY], ids=["root", "ordinary"])
def test_where_isolation_works_nothing_is_missing(who: str) -> None:
    if run("", "dict(selftest.attempted())['user']") != "0":
        pytest.skip("this host forbids user namespaces")
    assert run(who) == "None"


@as_root
def test_namespaces_that_are_used_up_are_named_with_their_setting() -> None:
    told = run(NO_MORE_NAMESPACES)
    assert told == (
        "no user namespaces: user.max_user_namespaces is 0; as root: sysctl -w user.max_user_namespaces=15000"
    )


@as_root
@pytest.mark.parametrize("who", ["", ORDINARY], ids=["root", "ordinary"])
def test_a_filter_of_an_outer_container_is_named(who: str) -> None:
    told = run(FILTER + who)
    assert told.startswith("no user namespaces: a seccomp filter") and "--security-opt seccomp=unconfined" in told


@as_root
@pytest.mark.parametrize("who", ["", ORDINARY], ids=["root", "ordinary"])
def test_a_covered_proc_is_named(who: str) -> None:
    told = run(COVERED_PROC + who)
    assert told.startswith("no new mounts of /proc: parts of /proc are covered (/proc/version)")
    assert "systempaths=unconfined" in told


def test_attempts_that_ended_early_do_not_count_as_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    # A child that is killed half-way cannot be timed from outside.
    monkeypatch.setattr(probe, "_attempted", lambda: (("user", 0), ("mount", 0)))
    told = probe.missing_isolation.__wrapped__()
    assert told is not None and told.startswith("could not try pid namespaces")


@pytest.mark.parametrize(
    ("setting", "value", "fix"),
    [
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ],
)
@pytest.mark.parametrize("step", ["user", "mount"])
def test_a_setting_that_forbids_it_is_named(proc: Path, setting: str, value: str, fix: str, step: str) -> None:
    (proc / "sys" / setting).write_text(f"{value}\n")
    found, told = refusals.explain(step, errno.EPERM, proc=proc)
    assert found == f"{setting.replace('/', '.')} is {value}" and told == f"as root: {fix}"


def test_settings_for_ordinary_users_do_not_explain_what_root_meets(proc: Path) -> None:
    (proc / "sys/kernel/unprivileged_userns_clone").write_text("0\n")
    (proc / "self/status").write_text("Uid:\t0\t0\t0\t0\nSeccomp:\t2\n")
    assert "seccomp" in refusals.explain("user", errno.EPERM, proc=proc)[0]


@pytest.mark.parametrize(
    ("step", "error", "found"),
    [
        ("user", errno.EINVAL, "built without user namespaces"),
        ("network", errno.ENOSPC, "user.max_net_namespaces is used up"),
        ("user", errno.EPERM, "a security module"),
        ("overlay", errno.ENODEV, "no overlay file system"),
        ("xattr", errno.EOPNOTSUPP, "deleted inside"),
        ("idmapped", errno.EINVAL, "(ext4) cannot show other owners"),
        ("idmapped", errno.EPERM, "root in it"),
        ("tmpfs", errno.ENOMEM, "cannot allocate memory"),
    ],
)
def test_other_errors_are_explained_too(proc: Path, step: str, error: int, found: str) -> None:
    told, fix = refusals.explain(step, error, proc=proc)
    assert found in told and fix


def test_a_chroot_is_named(proc: Path) -> None:
    (proc / "self/mountinfo").write_text("2 1 0:5 / /proc rw - proc proc rw\n")
    assert "chroot" in refusals.explain("user", errno.EPERM, proc=proc)[0]


@pytest.mark.parametrize(
    ("program", "ok", "found"),
    [
        ("echo 28.2.2", True, "daemon 28.2.2 answers"),
        ("echo 'permission denied' >&2; exit 1", None, "its daemon does not answer: permission denied"),
        (None, None, "no docker; builds and saves images"),
    ],
)
def test_the_docker_daemon_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, ok: bool | None, found: str
) -> None:
    if program:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = next(check for check in probe.checks() if check.name == "docker")
    assert check.ok is ok
    assert check.found.startswith(found)
    assert bool(check.fix) is not bool(ok)
