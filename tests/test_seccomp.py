"""Seccomp: what the filter decides, ordinary programs under it, and what must not work inside."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aenv.base.errors import Unsupported
from aenv.isolation.sandbox import seccomp, syscalls
from aenv.isolation.sandbox.seccomp import (
    ABSENT,
    ALLOW,
    ALLOWED,
    ARCHITECTURES,
    CHECKED,
    IGNORE,
    KILL,
    REFUSE,
    REFUSED,
)
from tests.system import require

MACHINES = ("x86_64", "aarch64")
NAMES = {machine: {number: name for name, number in syscalls.NUMBERS[machine].items()} for machine in MACHINES}
PROGRAMS = {machine: seccomp.compiled(machine) for machine in MACHINES}
FORKS = 0x01200011  # the flags that fork() gives clone
NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")


def decide(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> tuple[int, int]:
    """What the kernel would do with this call, and after how many instructions."""
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *(word & (1 << 64) - 1 for word in words))
    here = value = steps = 0
    while True:
        operation, yes, no, constant = struct.unpack_from("<HBBI", program, here * 8)
        here, steps = here + 1, steps + 1
        match operation:
            case 0x06:
                return constant, steps
            case 0x20:
                (value,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                value &= constant
            case 0x05:
                here += constant
            case 0x15:
                here += yes if value == constant else no
            case 0x35:
                here += yes if value >= constant else no
            case _:
                raise AssertionError(f"the program has an unknown instruction {operation:#x}")


def wanted(machine: str, number: int, arguments: Sequence[int]) -> int:
    """What the profile says, written a second time, the way the kernel reads the arguments."""
    name = NAMES[machine].get(number, "")
    first, second, third = (word & 0xFFFFFFFF for word in [*arguments, 0, 0, 0][:3])
    if name in ALLOWED or name in REFUSED:
        return ALLOW if name in ALLOWED else REFUSE
    if name in ("socket", "socketpair"):
        by_family = {
            1: second & 15 in (1, 2, 5),
            2: second & 15 in (1, 2) and third in (0, 6, 17),
            10: second & 15 in (1, 2) and third in (0, 6, 17),
            16: third == 0,
        }
        return ALLOW if by_family.get(first) else REFUSE
    if name == "setsockopt":
        return IGNORE if (second, third) == (socket.SOL_SOCKET, socket.SO_LINGER) else ALLOW
    harmless = {
        "clone": not any(first & flag for flag in NAMESPACES),
        "fcntl": second not in (1024, 1026, 1040),
        "ioctl": second not in (0x5412, 0x541C, 0x541D, 0x5423),
        "mknod": (second & 0xFFFF) >> 12 in (0, 1, 8, 12),
        "mknodat": (third & 0xFFFF) >> 12 in (0, 1, 8, 12),
        "personality": first in (0, 8, 0x40000, 0xFFFFFFFF),
        "prlimit64": first == 0,
        "prctl": first not in (35, 57, 62),
    }
    return ABSENT if name not in harmless else ALLOW if harmless[name] else REFUSE


def test_each_call_of_the_table_has_one_place_in_the_profile() -> None:
    lists = [ALLOWED, REFUSED, frozenset(CHECKED)]
    assert sum(map(len, lists)) == len(frozenset.union(*lists))
    assert frozenset.union(*lists) == set(NAMES["x86_64"].values()) | set(NAMES["aarch64"].values())


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header}; install it with: apt-get install -y linux-libc-dev")
    text = Path(header).read_text()
    shared = dict(re.findall(r"#define\s+__NR_(\w+)\s+__NR3264_(\w+)", text))
    found = {name: int(number) for name, number in re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", text)}
    found |= {name: found[base] for name, base in shared.items() if base in found}
    ours = {name: number for name, number in syscalls.NUMBERS[machine].items() if name in found}
    assert len(ours) > 280
    assert ours == {name: found[name] for name in ours}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_is_decided_as_the_profile_says(machine: str) -> None:
    # No arguments, none that work, and all that some check looks at.
    tries = [(0,) * 6, (-1,) * 6, (FORKS, 0x5413, 0o020644), (2, 3, 1), (16, 3, 0), (1, 1, 0), (9, 1, 13)]
    for number in [*range(601), 0x40000000, 0x40000000 + 59, 0x400001FF, 0x7FFFFFFF, 0xFFFFFFFF]:
        for arguments in tries:
            decision, _ = decide(PROGRAMS[machine], ARCHITECTURES[machine], number, arguments)
            assert decision == wanted(machine, number, arguments), (number, NAMES[machine].get(number), arguments)


INTERESTING = (*range(20), 35, 57, 62, 115, 132, 262, 1024, 1026, 1040, 0x5412, 0x541C, 0x541D, 0x5423)
INTERESTING += (0o010644, 0o020644, 0o060644)
INTERESTING += (*NAMESPACES, FORKS, 0o100644, 0o140644, 0x40000, 0x80003, 0xFFFFFFFF, 0x80000002, 0o220644)
halves = st.sampled_from(INTERESTING) | st.integers(0, 2**32 - 1)
words = st.builds(lambda low, high: low | high << 32, halves, st.just(0) | halves)


@given(machine=st.sampled_from(MACHINES), name=st.sampled_from(sorted(CHECKED)), arguments=st.tuples(*[words] * 6))
@example(machine="x86_64", name="ioctl", arguments=(0, 0x5412 | 1 << 32, 0, 0, 0, 0))
@example(machine="x86_64", name="clone", arguments=(0x10000011 | 0xFFFFFFFF << 32, 0, 0, 0, 0, 0))
@example(machine="aarch64", name="socket", arguments=(17 | 1 << 63, 3, 0, 0, 0, 0))
@example(machine="aarch64", name="socket", arguments=(2, 0x11, 6, 0, 0, 0))
@example(machine="x86_64", name="mknod", arguments=(0, 0o020644 | 1 << 16, 0, 0, 0, 0))
@example(machine="x86_64", name="personality", arguments=(0xFFFFFFFFFFFFFFFF, 0, 0, 0, 0, 0))
def test_arguments_are_judged_as_the_kernel_reads_them_whatever_is_in_the_rest_of_the_register(
    machine: str, name: str, arguments: tuple[int, ...]
) -> None:
    number = syscalls.NUMBERS[machine].get(name)
    if number is not None:
        decision, _ = decide(PROGRAMS[machine], ARCHITECTURES[machine], number, arguments)
        assert decision == wanted(machine, number, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_in_another_machines_convention_end_the_process(machine: str) -> None:
    i386, arm, big_endian_arm = 0x40000003, 0x40000028, 0x800000B7
    others = {i386, arm, big_endian_arm, 0, *ARCHITECTURES.values()} - {ARCHITECTURES[machine]}
    for architecture in others:
        for number in range(600):
            assert decide(PROGRAMS[machine], architecture, number) == (KILL, 3)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_decision_without_arguments_takes_few_instructions(machine: str) -> None:
    plain = [number for number, name in NAMES[machine].items() if name not in CHECKED]
    assert max(decide(PROGRAMS[machine], ARCHITECTURES[machine], number)[1] for number in plain) <= 11


def test_a_program_longer_than_a_jump_still_decides_each_number() -> None:
    runs = [
        (number, (ALLOW, CHECKED["clone"], REFUSE, CHECKED["mknod"], ABSENT)[number % 5]) for number in range(900)
    ]
    code = seccomp._Code()
    code.search(runs)
    code.add(0x20, 0)
    for number, outcome in runs:
        calm = ALLOW if isinstance(outcome, seccomp.Switch) else outcome
        bad = REFUSE if isinstance(outcome, seccomp.Switch) else outcome
        assert decide(code.bytes(), 0, number, (0, 0))[0] == calm
        assert decide(code.bytes(), 0, number, (NAMESPACES[0], 0o020000))[0] == bad


def test_a_machine_without_numbers_is_named() -> None:
    with pytest.raises(
        Unsupported, match="no system call numbers for 'riscv64'; instances run on x86_64 and aarch64"
    ):
        seccomp.compiled("riscv64")


# Real programs, each started by a process that has shut itself in.

SHUT_IN = """
import os, sys
from aenv.isolation.sandbox import seccomp, system
system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install(seccomp.compiled())
os.execvp(sys.argv[1], sys.argv[1:])
"""


def run(folder: Path, *command: str, filtered: bool = True) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8"}
    start = [sys.executable, "-c", SHUT_IN] if filtered else []
    return subprocess.run([*start, *command], cwd=folder, env=variables, capture_output=True, text=True)


def output(folder: Path, *command: str) -> str:
    done = run(folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_bash_has_pipelines_jobs_and_redirections(tmp_path: Path) -> None:
    script = """
    set -euo pipefail
    seq 1 1000 | sort -rn | head -3 | tr '\\n' ' ' > numbers || [ $? = 141 ]
    sleep 60 & kill %1; wait %1 || echo "ended by $?"
    mkfifo pipe; (echo through > pipe) & read -r line < pipe; echo "$line"
    diff <(echo a) <(echo b) > /dev/null || echo differ
    cp -a numbers copy; mv copy moved; ln -s moved link; chmod 600 moved; touch -d yesterday moved; cat link
    tar cz numbers | tar tz; find . -name 'num*' -exec wc -c {} +; timeout 5 nice -n 5 true; id -u > /dev/null
    """
    text = output(tmp_path, "bash", "-c", script)
    assert text.splitlines()[:4] == ["ended by 143", "through", "differ", "1000 999 998 numbers"]


def test_git_commits_clones_and_collects_garbage(tmp_path: Path) -> None:
    require("git", "git")
    script = """
    set -eu; git init -q -b main one; cd one; git config user.email a@b.c; git config user.name a
    echo text > file; git add file; git commit -qm first; git switch -qc other; echo more >> file
    git commit -qam second; git gc -q; cd ..; git clone -q one two; git -C two log --oneline origin/other | wc -l
    """
    assert output(tmp_path, "bash", "-c", script).split() == ["2"]


def test_gcc_makes_programs_that_run(tmp_path: Path) -> None:
    require("gcc", "gcc")
    (tmp_path / "hello.c").write_text(
        "#include <pthread.h>\n#include <stdio.h>\n"
        'static void *say(void *x) { puts("hello"); return x; }\n'
        "int main(void) { pthread_t t; pthread_create(&t, 0, say, 0); return pthread_join(t, 0); }\n"
    )
    assert output(tmp_path, "bash", "-c", "gcc -O2 -pipe -pthread hello.c -o hello && ./hello") == "hello\n"


def test_sqlite3_keeps_a_database(tmp_path: Path) -> None:
    require("sqlite3", "sqlite3")
    statements = (
        "pragma journal_mode=wal; create table t(x); insert into t values (40), (2); select sum(x) from t;"
    )
    assert output(tmp_path, "sqlite3", "data.db", statements) == "wal\n42\n"


def test_tmux_has_a_server_with_panes(tmp_path: Path) -> None:
    require("tmux", "tmux")
    script = """
    set -eu; tmux() { command tmux -S socket -f /dev/null "$@"; }; trap 'tmux kill-server' EXIT
    say() { echo "tmux -S socket wait-for -S $1"; }
    tmux new-session -d "$(say ready); read -r line; eval \\"\\$line\\"; $(say done); read -r line"
    tmux wait-for ready; tmux send-keys 'echo sum=$((40 + 2))' Enter; tmux wait-for done; tmux capture-pane -p
    """
    assert "sum=42" in output(tmp_path, "bash", "-c", script).splitlines()


def test_node_has_workers_children_and_sockets(tmp_path: Path) -> None:
    require("node", "nodejs")
    script = """
    const { Worker } = require("worker_threads"), fs = require("fs"), net = require("net")
    fs.writeFileSync("a", "text"); fs.copyFileSync("a", "b")
    const child = require("child_process").execSync("cat b").toString()
    new Worker("require('worker_threads').parentPort.postMessage(42)", { eval: true }).on("message", (number) => {
      const server = net.createServer((socket) => socket.end("served")).listen(0, "127.0.0.1", () =>
        require("dns").lookup("localhost", () =>
          net.connect(server.address().port, "127.0.0.1").on("data", (data) => {
            console.log(child, number, data.toString()); server.close() })))
    })
    """
    assert output(tmp_path, "node", "-e", script) == "text 42 served\n"


@pytest.mark.slow
def test_pytest_runs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path): assert not list(tmp_path.iterdir())\n")
    assert "1 passed" in output(tmp_path, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", ".")


@pytest.mark.slow
def test_pip_installs_a_package(tmp_path: Path) -> None:
    pip = require("pip", "python3-pip")
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "answer = 42\n")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    output(tmp_path, pip, "install", "--no-index", "--target", "made", "./tiny-1.0-py3-none-any.whl")
    assert (tmp_path / "made" / "tiny.py").read_text() == "answer = 42\n"


CONCURRENT = """
import asyncio, concurrent.futures, multiprocessing, socket, sys, tempfile, threading
from multiprocessing import shared_memory

async def main():
    async def serve(reader, writer):
        writer.write(await reader.readline()); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, "localhost", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(b"line\\n"); line = await reader.readline(); writer.close(); server.close()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await child.communicate(b"child"); await asyncio.to_thread(threading.Event().wait, 0)
    return line.decode().strip() + out.decode()

def double(x): return 2 * x

if __name__ == "__main__":
    print(asyncio.run(main()))
    import uvloop
    print(uvloop.run(main()))
    with multiprocessing.Pool(2) as pool: print(pool.map(double, [1, 2]))
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(double, [3])))
    memory = shared_memory.SharedMemory(create=True, size=10); memory.close(); memory.unlink()
    left, right = socket.socketpair(); left.sendmsg([b"x"]); print(right.recv(1), socket.if_nameindex()[0][1])
"""


@pytest.mark.slow
def test_python_has_threads_asyncio_uvloop_and_multiprocessing(tmp_path: Path) -> None:
    (tmp_path / "concurrent_things.py").write_text(CONCURRENT)
    lines = output(tmp_path, sys.executable, "concurrent_things.py").splitlines()
    assert lines == ["linechild", "linechild", "[2, 4]", "[6]", "b'x' lo"]


# Prints, for each call [number, arguments...] that it is given, the errno, or 0 when it worked.
TRY = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
results, parent = [], os.getpid()
for number, *arguments in json.loads(sys.argv[1]):
    words = [arg.encode() if isinstance(arg, str) else ctypes.c_ulong(arg) for arg in arguments]
    ctypes.set_errno(0)
    failed = libc.syscall(ctypes.c_long(number), *words) == -1
    if os.getpid() != parent: os._exit(0)  # clone worked
    results.append(ctypes.get_errno() if failed else 0)
print(json.dumps(results))
"""


def tried(folder: Path, calls: Sequence[Sequence[int | str]], *, filtered: bool = True) -> list[str]:
    """The name of what each call gave: "EPERM", or "" when it worked."""
    done = run(folder, sys.executable, "-c", TRY, json.dumps(calls), filtered=filtered)
    assert done.returncode == 0, done.stderr
    return [errno.errorcode[code] if code else "" for code in json.loads(done.stdout)]


def can_see_refusals() -> bool:
    """Whether a call that the filter refuses would work, or fail in another way, without it."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return status["Seccomp"].strip() == "0" and int(status["CapEff"], 16) >> 21 & 1 == 1 and os.getuid() == 0


def here(name: str) -> int:
    return syscalls.numbers()[name]


# With arguments that cannot work, these do nothing outside; vhangup has none, and would end our terminal.
HARMLESS = sorted(REFUSED & set(syscalls.NUMBERS.get(os.uname().machine, {})) - {"vhangup"})


def test_every_refused_call_gives_eperm(tmp_path: Path) -> None:
    calls = [(here(name), *[2**64 - 1] * 6) for name in HARMLESS]
    assert dict(zip(HARMLESS, tried(tmp_path, calls), strict=True)) == dict.fromkeys(HARMLESS, "EPERM")


def test_outside_no_refused_call_gives_eperm(tmp_path: Path) -> None:
    if not can_see_refusals():
        pytest.skip("only root, unfiltered, gets another answer than EPERM for all of them")
    calls = [(here(name), *[2**64 - 1] * 6) for name in HARMLESS]
    got = tried(tmp_path, calls, filtered=False)
    assert [name for name, answer in zip(HARMLESS, got, strict=True) if answer == "EPERM"] == []


def dangerous(tmp_path: Path) -> dict[str, tuple[int | str, ...]]:
    garbage = 0xDEAD << 32
    mknod = (here("mknodat"), 2**64 - 100)
    return {
        **{f"clone {flag:#x}": (here("clone"), flag | 17, 0, 0, 0, 0) for flag in NAMESPACES},
        "clone with garbage above": (here("clone"), 0x04000011 | garbage, 0, 0, 0, 0),
        "raw socket": (here("socket"), 2, 3, 1),
        "raw socket, close on exec, garbage above": (here("socket"), 2 | garbage, 0x80003 | garbage, 1 | garbage),
        "raw v6 socket": (here("socket"), 10, 3, 58),
        "packet socket": (here("socket"), 17, 3, 0x300),
        "old packet socket": (here("socket"), 2, 10, 0x300),
        "vsock": (here("socket"), 40, 1, 0),
        "crypto socket": (here("socket"), 38, 5, 0),
        "sctp": (here("socket"), 2, 1, 132),
        "l2tp": (here("socket"), 2, 2, 115),
        "netfilter's netlink": (here("socket"), 16, 3, 12),
        "audit's netlink": (here("socket"), 16, 3, 9),
        "socketpair of tipc": (here("socketpair"), 30, 1, 0, 0),
        "TIOCSTI": (here("ioctl"), 0, 0x5412, " "),
        "TIOCSTI, garbage above": (here("ioctl"), 0, 0x5412 | garbage, " "),
        "TIOCLINUX": (here("ioctl"), 0, 0x541C, " "),
        "TIOCSETD": (here("ioctl"), 0, 0x5423, "\0\0\0\0"),
        "character device": (*mknod, f"{tmp_path}/null", 0o020666, 0x103),
        "block device, garbage above": (*mknod, f"{tmp_path}/disk", 0o060666 | 0xF << 16 | garbage, 0x700),
        "READ_IMPLIES_EXEC": (here("personality"), 0x0400000),
        "PR_SCHED_CORE": (here("prctl"), 62, 0, 0, 0, 0),
    }


def test_dangerous_arguments_give_eperm(tmp_path: Path) -> None:
    calls = dangerous(tmp_path)
    got = tried(tmp_path, list(calls.values()))
    assert dict(zip(calls, got, strict=True)) == dict.fromkeys(calls, "EPERM")


def test_outside_dangerous_arguments_do_not_give_eperm(tmp_path: Path) -> None:
    if not can_see_refusals():
        pytest.skip("only root, unfiltered, gets another answer than EPERM for all of them")
    calls = dangerous(tmp_path)
    got = dict(zip(calls, tried(tmp_path, list(calls.values()), filtered=False), strict=True))
    for device in ("null", "disk"):
        (tmp_path / device).unlink()
    assert [name for name, answer in got.items() if answer == "EPERM"] == []
    assert got["raw socket"] == got["character device"] == got[f"clone {NAMESPACES[2]:#x}"] == ""


def test_harmless_uses_of_the_checked_calls_work(tmp_path: Path) -> None:
    mknod = (here("mknodat"), 2**64 - 100)
    calls: dict[str, tuple[int | str, ...]] = {
        "fork by clone": (here("clone"), FORKS, 0, 0, 0, 0),
        "fork by clone, garbage above": (here("clone"), 17 | 1 << 40, 0, 0, 0, 0),
        "fifo": (*mknod, f"{tmp_path}/fifo", 0o010600, 0),
        "file": (*mknod, f"{tmp_path}/file", 0o600, 0),
        "socket file": (*mknod, f"{tmp_path}/socket", 0o140600, 0),
        "udp": (here("socket"), 2, 2 | 0x80800, 17),
        "route": (here("socket"), 16, 0x80003, 0),
        "unix seqpacket": (here("socket"), 1, 5, 0),
        "question": (here("personality"), 0xFFFFFFFF),
        "name": (here("prctl"), 15, "name", 0, 0, 0),
    }
    assert dict(zip(calls, tried(tmp_path, list(calls.values())), strict=True)) == dict.fromkeys(calls, "")


def test_calls_newer_than_the_table_and_clone3_do_not_exist(tmp_path: Path) -> None:
    assert tried(tmp_path, [(435, 0, 0), (600,), (451, 2**64 - 1, 0, 0, 0)]) == ["ENOSYS"] * 3
    # so that the test can fail: outside, clone3 and cachestat complain about their arguments
    assert tried(tmp_path, [(435, 0, 0)], filtered=False) != ["ENOSYS"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="32-bit code of x86_64")
def test_a_32_bit_call_ends_the_process_and_an_x32_call_does_not_exist(tmp_path: Path) -> None:
    # mov eax, 20 (getpid); int 0x80; ret
    script = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""
    assert run(tmp_path, sys.executable, "-c", script).returncode == -signal.SIGSYS
    assert run(tmp_path, sys.executable, "-c", script, filtered=False).returncode != -signal.SIGSYS
    assert tried(tmp_path, [(0x40000000 + 39,)]) == ["ENOSYS"]


def test_the_filter_holds_for_threads_that_were_there_before(tmp_path: Path) -> None:
    script = """
import os, threading
from aenv.isolation.sandbox import seccomp, system
go, answers = threading.Event(), []
def attempt():
    go.wait()
    try: system.unshare()
    except OSError as error: answers.append(error.errno)
thread = threading.Thread(target=attempt); thread.start()
system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install(seccomp.compiled())
go.set(); thread.join(); print(answers)
"""
    assert run(tmp_path, sys.executable, "-c", script, filtered=False).stdout == f"[{errno.EPERM}]\n"


def test_a_filter_of_its_own_does_not_give_a_program_back_what_is_refused(tmp_path: Path) -> None:
    script = """
import struct
from aenv.isolation.sandbox import seccomp, system
seccomp.install(struct.pack("=HBBI", 6, 0, 0, seccomp.ALLOW))
try: system.unshare()
except OSError as error: print(error)
"""
    assert "operation not permitted" in output(tmp_path, sys.executable, "-c", script)
