"""What root of a sidecar can do with the capabilities that it has: everything to its own, nothing to the host.

Each attack is made there by a process with all of these capabilities. The same program is run outside, as root of
the host on files and processes of the test, where it succeeds; and what a container's root may do succeeds inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv.base.http1 import Pool
from aenv.engines.base import Address, InstanceSpec, LazySidecar, Network
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.sandbox import interpreter
from tests.attacks.test_rights_left_behind import lending
from tests.sidecars import engine_with_lazy_sidecars

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id, and sidecars no capabilities"),
]

ENVIRONMENT = """
from aenv import Sidecar, register_tool


@register_tool
async def sh(command: str, second: Sidecar, stdin: str = "") -> dict:
    return vars(await second.exec(command, stdin=stdin))


@register_tool
async def end(second: Sidecar) -> dict:
    await second.end_processes()
    return {"left": await second.processes()}


@register_tool
async def replace(path: str, second: Sidecar) -> dict:
    await second.put_folder(path, {"new": b"new"})
    return vars(await second.exec(f"ls {path}"))
"""

# Prints what came of each: "done", or the name of the error.
ATTACKS = """
import ctypes, errno, json, os, shutil, signal, socket, stat, subprocess, sys

folder, pid, theirs = sys.argv[1], int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def gave_away():
    os.chown(theirs, 1000, 1000)

def changed_mode():
    os.chmod(theirs, stat.S_IMODE(os.stat(theirs).st_mode))

def touched():
    os.utime(theirs, (0, 0) if theirs.startswith(folder) else None)
    os.setxattr(theirs, "user.x", b"x")

def made_device():
    os.mknod(f"{folder}/device", stat.S_IFCHR | 0o666, os.makedev(1, 3))

def mounted():
    os.makedirs(f"{folder}/mount", exist_ok=True)
    checked(libc.mount(b"x", f"{folder}/mount".encode(), b"tmpfs", 0, None))
    checked(libc.umount(f"{folder}/mount".encode()))

def made_namespace():
    checked(libc.unshare(0x10000000))

def entered_namespace():
    checked(libc.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0))

def named_host():
    name = socket.gethostname().encode()
    checked(libc.sethostname(name, len(name)))

def opened_raw_socket():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()

def traced():
    checked(libc.ptrace(16, pid, 0, 0))
    os.waitpid(pid, 0)
    checked(libc.ptrace(17, pid, 0, 0))

def read_variables():
    open(f"/proc/{pid}/environ", "rb").read()

def read_memory():
    with open(f"/proc/{pid}/maps") as lines:
        first = int(lines.readline().partition("-")[0], 16)
    os.pread(os.open(f"/proc/{pid}/mem", os.O_RDONLY), 8, first)

def looked_at_files():
    os.readlink(f"/proc/{pid}/fd/0")

def limited():
    import resource
    resource.prlimit(pid, resource.RLIMIT_CPU, resource.prlimit(pid, resource.RLIMIT_CPU))

def became_root_by_mode():
    become_root(lambda path: os.chmod(path, 0o6755))

def became_root_by_capability():
    one = __import__("struct").pack("<5I", 0x02000001, 1, 0, 0, 0)  # chown; more than the host has would fail
    become_root(lambda path: os.setxattr(path, "security.capability", one))

def become_root(lend):
    path = f"{folder}/lent"
    shutil.copy(shutil.which("cat"), path)
    lend(path)
    said = subprocess.run([path, "/proc/self/status"], user=1000, group=1000, capture_output=True, text=True)
    words = dict(line.split(":", 1) for line in said.stdout.splitlines())
    if int(words["CapEff"], 16) == 0 and words["Uid"].split()[1] == "1000":
        raise PermissionError(errno.EPERM, "")

def killed():
    os.kill(pid, signal.SIGKILL)


said = {}
for name, attack in list(globals().items()):
    if callable(attack) and getattr(attack, "__module__", "") == "__main__" and not attack.__code__.co_argcount:
        child = os.fork()  # each by itself: what one has changed is not in the way of the next
        if child == 0:
            try:
                attack()
                os._exit(0)
            except OSError as error:
                os._exit(error.errno or 255)
            finally:
                os._exit(255)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said[name] = "done" if status == 0 else errno.errorcode.get(status, str(status))
print(json.dumps(said))
"""
# What root of a container does, in a shell: packages and servers do it.
OWN = """
set -e
mkdir -p /srv/own && cd /srv/own
touch given && chown 33:33 given && chmod 2755 given && test "$(stat -c %u:%g given)" = 33:33
mkdir closed && touch closed/file && chown -R 33:33 closed && chmod 0 closed && rm closed/file
python3 - <<'END'
import os, signal, socket, subprocess
assert subprocess.run(["id", "-u"], user=33, group=33, extra_groups=[], capture_output=True).stdout == b"33\\n"
child = subprocess.Popen(["sleep", "1000"], user=33)
child.send_signal(signal.SIGKILL)
assert child.wait() == -9
with socket.socket() as server:
    server.bind(("127.0.0.1", 80))
os.chroot("/srv")
assert os.listdir("/") == ["own"]
END
"""
HARMLESS = {"killed"}  # nothing is raised: the kernel drops the signal

Call = Callable[..., Awaitable[Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NativeEngine]:
    home = tmp_path_factory.mktemp("home")
    async with engine_with_lazy_sidecars(home) as engine:
        yield engine
    assert lending(home) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(engine: NativeEngine, tmp_path_factory: pytest.TempPathFactory) -> Address:
    """An instance whose sidecar has the host's own system."""
    folder = tmp_path_factory.mktemp("env")
    (folder / "rights.py").write_text(ENVIRONMENT)
    return await engine.create(InstanceSpec("rights-1", "rights@1.0.0", folder, sidecar=LazySidecar(None)))


@pytest_asyncio.fixture(loop_scope="module")
async def call(address: Address) -> AsyncIterator[Call]:
    async with calling(address) as call:
        yield call


@contextlib.asynccontextmanager
async def calling(address: Address) -> AsyncIterator[Call]:
    async with Pool() as pool:

        async def call(name: str, **arguments: Any) -> Any:
            body = json.dumps(arguments).encode()
            head = [("content-type", "application/json")]
            response = await pool.request(address.origin, "POST", f"/tools/{name}", head, body)
            data = json.loads(await response.read())["data"]
            return data["content"][0]["text"] if data["is_error"] else data["structured"]

        yield call


async def attacked(call: Call, theirs: str) -> dict[str, str]:
    done = await call("sh", command=f"python3 - /tmp 1 {theirs}", stdin=ATTACKS)
    assert done["exit_code"] == 0, done
    said: dict[str, str] = json.loads(done["stdout"])
    return said


async def test_root_of_a_sidecar_may_do_with_its_own_what_root_of_a_container_may(call: Call) -> None:
    done = await call("sh", command=OWN)
    assert (done["exit_code"], done["stderr"]) == (0, "")


@pytest.mark.parametrize("theirs", ["/usr/bin/env", "/dev/null", "/environment/served/sidecar_commands.py"])
async def test_it_reaches_nothing_that_is_the_hosts(call: Call, theirs: str) -> None:
    before = os.stat("/dev/null")
    said = await attacked(call, theirs)
    assert {name for name, what in said.items() if what == "done"} == HARMLESS, said
    assert set(said.values()) <= {"done", "EPERM", "EACCES", "EROFS", "ENOSYS"}, said
    assert (os.stat("/dev/null").st_mode, os.stat("/dev/null").st_uid) == (before.st_mode, before.st_uid)


async def test_the_tests_and_answers_of_built_in_tasks_stay_covered(call: Call) -> None:
    place = interpreter.built_in_environments()
    uncover = f"umount -l {place}; mkdir -p /tmp/x; mount --bind {place} /tmp/x; chmod 777 {place}"
    done = await call("sh", command=f"{uncover}; find {place} /tmp/x -type f")
    assert (done["exit_code"], done["stdout"]) == (0, "")
    assert any(Path(place).rglob("test_*.py"))  # outside they are there


async def test_the_process_that_serves_there_goes_on_whatever_signal_it_is_sent(call: Call) -> None:
    for number in range(1, 65):
        await call("sh", command=f"kill -{number} 1")
        assert (await call("sh", command="echo there"))["stdout"] == "there\n", number


async def test_processes_of_other_users_end_with_the_others_before_a_verdict(call: Call) -> None:
    start = "import subprocess; subprocess.Popen(['sleep', '1000'], user=33, start_new_session=True)"
    assert (await call("sh", command=f'python3 -c "{start}"'))["exit_code"] == 0
    assert (await call("sh", command="pgrep -u 33 sleep"))["stdout"] != ""
    assert (await call("end"))["left"] == 0


async def test_folders_that_are_given_away_and_closed_are_replaced_by_a_verdict(call: Call) -> None:
    await call(
        "sh", command="mkdir -p /tests/in && touch /tests/in/old && chown -R 33:33 /tests && chmod -R 0 /tests"
    )
    assert (await call("replace", path="/tests"))["stdout"] == "new\n"


async def test_with_the_hosts_network_it_has_no_port_of_the_hosts(
    engine: NativeEngine, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "rights.py").write_text(ENVIRONMENT)
    full = Network("full")
    shared = await engine.create(
        InstanceSpec("rights-2", "rights@1.0.0", tmp_path, sidecar=LazySidecar(None), network=full)
    )
    bind = "import socket; socket.socket().bind(('127.0.0.1', 1023))"
    try:
        async with calling(shared) as call_shared:
            done = await call_shared("sh", command=f'python3 -c "{bind}"')
            assert "PermissionError" in done["stderr"]
    finally:
        await engine.destroy("rights-2")
    assert (await call("sh", command=f'python3 -c "{bind}"'))["exit_code"] == 0
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 1023))


@contextlib.contextmanager
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_outside_the_same_attacks_succeed() -> None:
    with victim() as process, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # for the programs that are run as another user
        theirs, program = Path(folder, "theirs"), Path(folder, "attacks.py")
        theirs.touch()
        program.write_text(ATTACKS)
        # In namespaces of its own: what it mounts and how it names its host is gone with it.
        command = [
            "unshare",
            "--mount",
            "--uts",
            sys.executable,
            str(program),
            folder,
            str(process.pid),
            str(theirs),
        ]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        said = json.loads(done.stdout)
        assert {name for name, what in said.items() if what != "done"} == set(), said
        assert process.wait() == -9
