#!/usr/bin/env python3
"""A real Kubernetes cluster of one node or two, in namespaces of its own, that leaves nothing behind.

`cluster.py run` starts it and prints one JSON line: its folder, its kubeconfig, its addresses. Then each line on
its standard input is a command, answered by a line: `stop NAME`, `start NAME` (a program), `load FILE` (an image),
`start node2` (a second node, of the programs `kubelet2` and `containerd2`).
It ends when its standard input ends: the kernel then ends all its processes with the pid namespace, and its
mounts, interfaces and rules of the packet filter with theirs. Only control groups remain, which are removed last.

Not here: building the programs (`build`), and what runs inside the namespaces (`node.py`).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
_PREFIX = "aenv-cluster-"
_CGROUPS = Path("/sys/fs/cgroup")


def main() -> int:
    if sys.argv[1:] != ["run"]:
        print("usage: cluster.py run", file=sys.stderr)
        return 2
    programs = subprocess.run([HERE / "build", "--cached"], capture_output=True, text=True)
    if programs.returncode:
        print(programs.stderr.strip(), file=sys.stderr)
        return 1
    if os.geteuid() != 0:
        print("a cluster needs root, to make namespaces", file=sys.stderr)
        return 1
    remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    (folder / "pid").write_text(str(os.getpid()))
    try:
        return run(folder, programs.stdout.strip())
    finally:
        remove(folder)


def run(folder: Path, programs: str) -> int:
    """The cluster, until our standard input ends."""
    number = free_number()
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command += [sys.executable, str(HERE / "node.py"), str(folder), programs, str(number)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    )
    assert child.stdin
    assert child.stdout
    try:
        if child.stdout.readline() != "up\n":
            return 1
        join(number, child.pid)
        child.stdin.write("joined\n")
        child.stdin.flush()
        answer = child.stdout.readline()
        print(answer, end="", flush=True)
        if not answer:
            return 1
        for line in sys.stdin:
            child.stdin.write(line)
            child.stdin.flush()
            print(child.stdout.readline(), end="", flush=True)
    except BrokenPipeError:
        return 1
    finally:
        child.kill()
        child.wait()
    return 0


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_number() -> int:
    """A number whose addresses (10.88.N.0 and 10.89.N.0) no route of this host has."""
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    return next(n for n in range(1, 250) if f"10.88.{n}." not in routes and f"10.89.{n}." not in routes)


def join(number: int, pid: int) -> None:
    """A link from this host into the cluster's network namespace, which goes with that."""
    link = f"aenvk{number}"
    for command in (
        f"ip link add {link} type veth peer name up0 netns {pid}",
        f"ip addr add 10.88.{number}.1/30 dev {link}",
        f"ip link set {link} up",
        f"ip route add 10.89.{number}.0/24 via 10.88.{number}.2",
    ):
        subprocess.run(command.split(), check=True)


def remove_stale() -> None:
    """What a run that was killed could not remove."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            pid = int((folder / "pid").read_text())
        except (OSError, ValueError):
            continue
        if not Path(f"/proc/{pid}").exists():
            remove(folder)


def remove(folder: Path) -> None:
    for group in _CGROUPS.glob(f"*/{folder.name}"):
        for path, _, _ in os.walk(group, topdown=False):
            for _ in range(100):  # processes that were just killed leave their group a moment later
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
