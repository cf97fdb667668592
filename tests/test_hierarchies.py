"""Where groups may be made, on hosts of every kind: folders that behave as the kernel's, and its own version 2."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import NotFound
from aenv.isolation import cgroups
from aenv.isolation.cgroups import control_files, control_group, mounted
from aenv.isolation.cgroups.control_files import Hierarchy
from aenv.isolation.cgroups.control_group import ControlGroup
from aenv.isolation.cgroups.mounted import ParentGroup
from aenv.isolation.sandbox import cgroup_moves
from tests.cgroup_kernel import FILES, Kernel

LIMITS: dict[str, Any] = {"cpus": 2.0, "memory_bytes": 1 << 30, "pids": 50}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel(tmp_path)
    # No kernel fills, empties and refuses in plain folders: these calls are what it would answer.
    for module in (mounted, control_group, control_files):
        monkeypatch.setattr(module, "write", kernel.write)
    monkeypatch.setattr(os, "mkdir", kernel.mkdir)
    monkeypatch.setattr(os, "rmdir", kernel.rmdir)
    monkeypatch.setattr(os, "getxattr", kernel.getxattr)
    monkeypatch.setattr(os, "access", kernel.access)
    return kernel


def procs(folder: Path) -> list[str]:
    return (folder / "cgroup.procs").read_text().split()


def test_in_a_delegated_unit_our_process_goes_to_a_leaf_and_back(kernel: Kernel) -> None:
    unit = kernel.mount_new("cpu memory pids", "/system.slice/aenv.service")
    kernel.delegated.add(unit)
    found = cgroups.find(proc=kernel.proc)
    assert found.enforced == ("cpu", "memory", "pids", "freezer") and found.missing == {}
    assert procs(unit) == [] and procs(unit / "aenv-self") == [str(os.getpid())]
    group = found.make("one", **LIMITS)
    folder = unit / "aenv" / "one"
    written = {name: (folder / name).read_text() for names in FILES.values() for name in names}
    assert written["cpu.max"] == "200000 100000" and written["cpu.weight"] == "200"
    assert written["memory.max"] == str(1 << 30) and written["memory.swap.max"] == "0"
    assert written["memory.oom.group"] == "1" and written["pids.max"] == "50"
    group.attach(4)
    assert procs(folder) == ["4"]
    kernel.write(f"{unit}/aenv-self/cgroup.procs", "4")
    group.remove()
    found.close()
    assert procs(unit) == ["4", str(os.getpid())] or procs(unit) == [str(os.getpid()), "4"]
    assert not (unit / "aenv").exists() and not (unit / "aenv-self").exists()


def test_who_restarts_in_the_leaf_finds_the_groups_of_before(kernel: Kernel) -> None:
    unit = kernel.mount_new("cpu memory pids", "/system.slice/aenv.service")
    kernel.delegated.add(unit)
    cgroups.find(proc=kernel.proc).make("one", **LIMITS)
    (kernel.proc / "cgroup").write_text("0::/system.slice/aenv.service/aenv-self\n")
    kernel.delegated.clear()
    assert cgroups.find(proc=kernel.proc).leftovers() == ["one"]


def test_groups_are_found_and_removed_when_our_own_cgroup_has_changed(kernel: Kernel) -> None:
    kernel.mount_old("cpu", own="/")
    kernel.mkdir(kernel.mount_old("memory", own="/first") / "first")
    kernel.mkdir(kernel.top / "memory" / "second")
    cgroups.find(proc=kernel.proc).make("one", **LIMITS).attach(5)
    kernel.write(f"{kernel.top}/cpu/cgroup.procs", "5")
    kernel.write(f"{kernel.top}/memory/cgroup.procs", "5")
    (kernel.proc / "cgroup").write_text("1:cpu:/\n2:memory:/second\n")
    found = cgroups.find(proc=kernel.proc)
    assert found.make("two", **LIMITS).folders[1] == f"{kernel.top}/memory/second/aenv/two"
    group = found.group("one")
    assert group.folders == [f"{kernel.top}/cpu/aenv/one", f"{kernel.top}/memory/first/aenv/one"]
    group.remove()
    assert [path.name for path in kernel.top.rglob("aenv")] == ["aenv"] * 2
    with pytest.raises(NotFound):
        found.group("one")


def test_a_users_session_uses_what_its_manager_was_given(kernel: Kernel) -> None:
    scope = kernel.mount_new("cpu memory pids", "/user.slice/user@1000.service/app.slice/terminal.scope")
    manager = scope.parent.parent
    kernel.write(f"{scope}/cgroup.procs", "7")  # the shell in the same scope stays where it is
    kernel.delegated.add(manager)
    for folder in manager.parents:
        kernel.closed.add(folder)
    found = cgroups.find(proc=kernel.proc)
    assert found.enforced == ("cpu", "memory", "pids", "freezer")
    found.make("one", **LIMITS)
    assert (manager / "aenv" / "one").is_dir() and procs(scope) == [str(os.getpid()), "7"]


def test_a_controller_that_was_not_delegated_is_missing_with_the_fix(kernel: Kernel) -> None:
    unit = kernel.mount_new("cpu memory pids", "/user.slice/user@1000.service")
    (unit / "cgroup.controllers").write_text("memory pids")
    kernel.delegated.add(unit)
    found = cgroups.find(proc=kernel.proc)
    assert found.enforced == ("memory", "pids", "freezer")
    assert "Delegate=cpu memory pids for user@1000.service" in found.missing["cpu"]


def test_the_top_of_a_container_gives_its_processes_a_leaf(kernel: Kernel) -> None:
    top = kernel.mount_new("cpu memory pids", "/", is_container=True)
    kernel.write(f"{top}/cgroup.procs", "1")
    assert "memory" in cgroups.find(proc=kernel.proc).enforced
    assert procs(top) == [] and len(procs(top / "aenv-self")) == 2


def test_root_in_a_session_with_others_uses_the_top_of_the_host(kernel: Kernel) -> None:
    scope = kernel.mount_new("cpu memory pids", "/user.slice/session-1.scope")
    kernel.write(f"{scope}/cgroup.procs", "7")
    assert cgroups.find(proc=kernel.proc).enforced == ("cpu", "memory", "pids", "freezer")
    assert (kernel.top / "unified" / "aenv").is_dir() and len(procs(scope)) == 2


def test_an_ordinary_user_without_delegation_is_told_what_to_do(kernel: Kernel) -> None:
    scope = kernel.mount_new("cpu memory pids", "/user.slice/session-1.scope")
    kernel.closed |= {scope, *scope.parents}
    found = cgroups.find(proc=kernel.proc)
    assert found.enforced == () and set(found.missing) == {"cpu", "memory", "pids", "freezer"}
    assert all("Delegate=yes" in why for why in found.missing.values())
    group = found.make("one", **LIMITS)
    group.attach(os.getpid())
    with pytest.raises(OSError, match="no cgroup here can freeze"):
        group.freeze()
    group.thaw()
    assert group.oom_kills() == 0 and group.used().processes == 0
    assert found.group("one").name == "one" and found.leftovers() == []
    group.remove()


def test_on_version_1_controllers_that_are_mounted_together_share_a_folder(kernel: Kernel) -> None:
    both = kernel.mount_old("cpu,cpuacct")
    kernel.mkdir(kernel.mount_old("memory", own="/docker/abc", root="/docker/abc") / "ignored")
    kernel.mount_old("pids,freezer", own="/elsewhere")
    found = cgroups.find(proc=kernel.proc)
    # What the freezer of version 1 holds cannot be killed, so it is not used.
    assert found.enforced == ("cpu", "memory", "pids")
    assert "mount -t cgroup2" in found.missing["freezer"]
    group = found.make("one", **LIMITS)
    assert group.folders == [
        f"{both}/aenv/one",
        f"{kernel.top}/memory/aenv/one",
        f"{kernel.top}/pids,freezer/aenv/one",
    ]
    assert (both / "aenv/one/cpu.shares").read_text() == "2048"


def test_what_an_earlier_version_froze_by_version_1_is_thawed_and_its_groups_are_gone(kernel: Kernel) -> None:
    freezer = kernel.mount_old("freezer")
    kernel.mkdir(freezer / "aenv")
    kernel.mkdir(freezer / "aenv" / "one")
    state = freezer / "aenv" / "one" / "freezer.state"
    state.write_text("FROZEN")
    (freezer / "aenv" / "one" / "cgroup.procs").write_text("77\n")
    cgroups.find(proc=kernel.proc)
    assert not (freezer / "aenv").exists()
    assert "77" in (freezer / "cgroup.procs").read_text().split()


def test_a_hybrid_host_freezes_by_version_2(kernel: Kernel) -> None:
    for controller in ("cpu", "memory", "pids", "freezer"):
        kernel.mount_old(controller)
    kernel.mount_new("", "/")
    found = cgroups.find(proc=kernel.proc)
    assert "freezer" in found.enforced
    group = found.make("one", **LIMITS)
    group.freeze()
    assert (kernel.top / "unified" / "aenv" / "one" / "cgroup.freeze").read_text() == "1"
    assert not (kernel.top / "freezer" / "aenv").exists()
    group.thaw()


def test_a_hybrid_host_takes_from_version_2_what_version_1_has_not(kernel: Kernel) -> None:
    kernel.mount_old("cpu")
    unit = kernel.mount_new("memory", "/aenv.service")
    kernel.delegated.add(unit)
    found = cgroups.find(proc=kernel.proc)
    assert found.enforced == ("cpu", "memory", "freezer"), found.missing
    assert "cgroup_enable=pids" in found.missing["pids"]
    group = found.make("one", **LIMITS)
    assert (unit / "aenv/one/memory.max").read_text() == str(1 << 30)
    group.freeze()
    assert (unit / "aenv/one/cgroup.freeze").read_text() == "1"
    group.thaw()
    assert (unit / "aenv/one/cgroup.freeze").read_text() == "0"


def test_a_host_without_cgroups_says_so(kernel: Kernel) -> None:
    found = cgroups.find(proc=kernel.proc)
    assert found.enforced == ()
    assert all("mount -t cgroup2" in why for why in found.missing.values())


def test_looking_changes_nothing(kernel: Kernel) -> None:
    unit = kernel.mount_new("cpu memory pids", "/aenv.service")
    kernel.delegated.add(unit)
    before = sorted(kernel.top.rglob("*"))
    mounted.look("aenv", proc=kernel.proc)
    assert sorted(kernel.top.rglob("*")) == before and procs(unit) == [str(os.getpid())]


def test_a_mount_point_with_a_blank_is_found(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.list_mount(Path("/mnt/a b\u00e9"), "cgroup", "cpu", "/", "/")
    assert mounted.read_mounts(kernel.proc)[0].point == "/mnt/a b\u00e9"


def test_on_version_2_alone_the_hierarchy_itself_is_asked_to_favour_moves(kernel: Kernel) -> None:
    kernel.mount_new("cpu", "/", name="v2")
    assert cgroup_moves.command(proc=kernel.proc) == f"mount -o remount,favordynmods {kernel.top}/v2"
    kernel.mount_old("memory")
    assert "name=aenv" in cgroup_moves.command(proc=kernel.proc)


# From here on the real version 2, with a controller that nobody uses.


@pytest.fixture
def unified() -> Iterator[Path]:
    """A cgroup of this test's own in the real version 2 hierarchy, that may give "hugetlb" to its groups."""
    points = [mount.point for mount in mounted.read_mounts() if mount.version == 2]
    if os.geteuid() != 0 or not points or not os.access(points[0], os.W_OK):
        pytest.skip("needs root and a version 2 hierarchy")
    top = Path(points[0])
    if "hugetlb" not in (top / "cgroup.controllers").read_text().split():
        pytest.skip("version 2 does not have the controller 'hugetlb'")
    lock = os.open(top, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)  # what tests at the same time set here is one setting
    was_on = "hugetlb" in (top / "cgroup.subtree_control").read_text().split()
    (top / "cgroup.subtree_control").write_text("+hugetlb")
    folder = top / f"aenv-test-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        for path in sorted(folder.rglob("cgroup.procs"), reverse=True):
            if path.parent != folder:
                path.parent.rmdir()
        folder.rmdir()
        if not was_on:
            (top / "cgroup.subtree_control").write_text("-hugetlb")
        os.close(lock)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """It works a little once a byte comes, answers with one, and waits."""
    code = "import os, signal, time\nos.read(0, 1)\nwhile time.process_time() < 0.05: pass\nos.write(1, b'+')"
    command = [sys.executable, "-I", "-S", "-c", f"{code}\nsignal.pause()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_the_kernel_lets_limits_in_once_the_processes_are_in_a_leaf(
    unified: Path, process: subprocess.Popen[bytes]
) -> None:
    (unified / "cgroup.procs").write_text(str(process.pid))
    still = mounted.prepare(ParentGroup(2, ("hugetlb",), str(unified), str(unified), movable=False), "aenv")
    assert "holds other processes" in still["hugetlb"]
    place = ParentGroup(2, ("hugetlb",), str(unified), str(unified), movable=True)
    assert mounted.prepare(place, "aenv") == {}
    assert procs(unified / "aenv-self") == [str(process.pid)]
    assert "hugetlb" in (unified / "aenv" / "cgroup.subtree_control").read_text()
    mounted.dismantle(place, "aenv")
    assert procs(unified) == [str(process.pid)] and not [path for path in unified.iterdir() if path.is_dir()]
    process.kill()
    process.wait()


def test_the_kernel_freezes_ends_and_counts_a_group_of_version_2(
    unified: Path, process: subprocess.Popen[bytes]
) -> None:
    place = ParentGroup(2, ("hugetlb",), str(unified), str(unified))
    assert mounted.prepare(place, "aenv") == {}
    hierarchy = Hierarchy(2, ("hugetlb",), place.parent("aenv"))
    group = ControlGroup("one", [hierarchy], hierarchy)
    os.mkdir(group.folders[0])
    group.attach(process.pid)
    assert process.stdin and process.stdout
    os.write(process.stdin.fileno(), b"g")
    assert os.read(process.stdout.fileno(), 1) == b"+"
    assert group.processes() == [process.pid] and group.used().cpu_seconds > 0
    group.freeze()
    assert "frozen 1" in (unified / "aenv/one/cgroup.events").read_text()
    group.thaw()
    assert "frozen 0" in (unified / "aenv/one/cgroup.events").read_text()
    group.freeze()
    group.kill()
    group.remove()
    assert process.wait(10) == -signal.SIGKILL
    mounted.dismantle(place, "aenv")


def test_a_process_can_begin_in_a_group_of_version_2(unified: Path) -> None:
    """By clone3 with CLONE_INTO_CGROUP: nothing has to be moved."""
    hierarchy = Hierarchy(2, (), str(unified))
    group = ControlGroup("one", [hierarchy], None)
    os.mkdir(group.folders[0])
    descriptor = os.open(group.folders[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    code = f"""
import ctypes, os, signal
words = (ctypes.c_uint64 * 11)(0x200000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, {descriptor})
child = ctypes.CDLL(None).syscall(435, ctypes.byref(words), 88)
if child == 0:
    print(open("/proc/self/cgroup").read(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], pass_fds=[descriptor], capture_output=True, text=True
    )
    os.close(descriptor)
    assert f"0::/{unified.name}/one\n" in done.stdout, done.stderr
    group.remove()
