"""Landlock: what can be reached of the file system, and of processes and sockets outside."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aenv.isolation.sandbox import landlock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="landlock is Linux's")


def restricted(folder: Path, script: str, *, abi: int | None = None) -> str:
    """What `script` prints in `folder`. It has `shut(readable, writable)` and `attempt(function, *arguments)`."""
    if landlock.abi() < (abi or landlock.LEAST_ABI):
        pytest.skip(f"this kernel has ABI {landlock.abi()} of landlock")
    prelude = """
import errno, os, signal, socket, subprocess, sys
from aenv.isolation.sandbox import landlock, system
def attempt(function, *arguments):
    try: function(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
    return "worked"
def write(path, mode="w"):
    with open(path, mode) as file: file.write("text")
def shut(readable, writable):
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict([*readable, "/usr", "/lib", sys.prefix, sys.base_prefix], writable)
"""
    if abi is not None:
        prelude += f"landlock.abi = lambda: {abi}\n"
    done = subprocess.run([sys.executable, "-c", prelude + script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def places(tmp_path: Path) -> Path:
    for name in ("read", "write", "write/sub", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("text")
    (tmp_path / "read" / "program").write_bytes(Path(shutil.which("true") or "").read_bytes())
    (tmp_path / "read" / "program").chmod(0o755)
    shutil.copy2(tmp_path / "read" / "program", tmp_path / "hidden" / "program")
    return tmp_path


ATTEMPTS = """
inside = os.open("hidden", os.O_PATH | os.O_DIRECTORY)
before = os.listdir("/proc/self/fd")
shut(["read", "/proc"], ["write"])
assert os.listdir("/proc/self/fd") == before, "a descriptor is left"
print(*[attempt(*args) for args in (
    (open, "read/file"), (os.listdir, "read"), (subprocess.check_call, ["read/program"]),
    (write, "write/file"), (write, "write/new"), (os.mkdir, "write/folder"), (os.truncate, "write/file", 0),
    (os.rename, "write/new", "write/sub/new"), (os.symlink, "x", "write/link"), (os.mkfifo, "write/fifo"),
    (os.unlink, "write/sub/new"), (os.rmdir, "write/folder"), (socket.socket(socket.AF_UNIX).bind, "write/socket"),
)])
print(*[attempt(*args) for args in (
    (open, "hidden/file"), (os.listdir, "hidden"), (subprocess.check_call, ["hidden/program"]),
    (lambda: os.open("file", os.O_RDONLY, dir_fd=inside),),
    (open, "read/../hidden/file"), (write, "read/file", "a"), (write, "read/new"), (os.unlink, "read/file"),
    (os.mkdir, "read/folder"), (os.rename, "write/file", "read/file2"), (os.symlink, "x", "read/link"),
    (os.mknod, "write/device", 0o020666, 0x103), (os.link, "read/program", "write/program"),
)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("abi", [2, 3, 4, 5, 6, 7])
def test_only_what_is_named_can_be_read_and_only_what_is_writable_changed(places: Path, abi: int) -> None:
    allowed, refused = restricted(places, ATTEMPTS, abi=abi).splitlines()
    assert allowed.split() == ["worked"] * 13
    answers = refused.split()
    # a link from a place with fewer rights is a move that would widen them, which the kernel calls EXDEV
    assert answers.pop() == "EXDEV"
    assert set(answers) == {"EACCES"} if os.getuid() == 0 else set(answers) <= {"EACCES", "EPERM"}


def test_outside_the_same_attempts_work(places: Path) -> None:
    answers = restricted(places, ATTEMPTS.replace("shut(", "print(", 1), abi=2).split("\n", 1)[1].split()
    assert answers.pop(-2) in ("worked", "EPERM")  # devices are root's
    assert set(answers) == {"worked"}


def test_truncating_is_refused_where_the_kernel_can(places: Path) -> None:
    script = "shut(['read'], []); print(attempt(os.truncate, 'read/file', 0))"
    assert restricted(places, script, abi=3) == "EACCES\n"
    assert restricted(places, script, abi=2) == "worked\n"  # so that the test can fail


def test_a_single_file_can_be_named(places: Path) -> None:
    script = "shut(['read/file'], ['write/file', '/dev/null'])\n"
    script += "print(attempt(open, 'read/file'), attempt(write, 'write/file'), attempt(write, '/dev/null'),"
    script += " attempt(open, 'read/program'), attempt(write, 'write/new'), attempt(write, 'read/file'))"
    assert restricted(places, script).split() == ["worked"] * 3 + ["EACCES"] * 3


def test_a_path_that_does_not_exist_is_an_error_and_restricts_nothing(places: Path) -> None:
    script = "print(attempt(shut, ['read', 'nowhere'], []), attempt(open, 'hidden/file'))"
    assert restricted(places, script) == "ENOENT worked\n"


@pytest.mark.parametrize("version", [0, 1])
def test_nothing_is_restricted_where_the_kernel_has_no_useful_landlock(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: version)  # in place of an older kernel
    landlock.restrict(["/nowhere"], [])  # would raise


def test_processes_outside_cannot_be_signalled_but_own_children_can(places: Path) -> None:
    script = """
print(attempt(os.kill, os.getppid(), 0))
shut([], [])
child = os.fork()
if not child: signal.pause()
print(attempt(os.kill, os.getppid(), 0), attempt(os.kill, child, signal.SIGKILL)); os.waitpid(child, 0)
"""
    assert restricted(places, script, abi=6).split() == ["worked", "EPERM", "worked"]


def test_abstract_sockets_outside_cannot_be_reached_but_own_ones_can(places: Path) -> None:
    name = f"\0{places}"
    script = f"""
def connect(name): socket.socket(socket.AF_UNIX).connect(name)
print(attempt(connect, {name!r}))
shut([], [])
own = socket.socket(socket.AF_UNIX); own.bind({name + "own"!r}); own.listen()
print(attempt(connect, {name!r}), attempt(connect, {name + "own"!r}))
"""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        assert restricted(places, script, abi=6).split() == ["worked", "EPERM", "worked"]
