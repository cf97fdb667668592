"""Limits of groups of processes, by the cgroups that this host has. Other hosts are in `test_hierarchies.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aenv.base.errors import Conflict, InvalidRequest, NotFound
from aenv.isolation import cgroups
from aenv.isolation.cgroups import Cgroups, ControlGroup, control_group, hierarchy
from aenv.isolation.sandbox import cgroup_moves
from benchmarks import favoured_moves

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make cgroups everywhere")

Start = Callable[[str], "subprocess.Popen[bytes]"]

ECHO = "import os\nwhile line := os.read(0, 1): os.write(1, line)"
# Each process begins the next and ends: whoever wants to catch it always looks at the last but one.
FLEE = "import os, time\nos.write(1, b'+')\nos.close(1)\nwhile True:\n    if os.fork(): os._exit(0)"


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(code)` gives a process that runs the code when a byte comes to its standard input."""
    processes = []

    def start_one(code: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", f"import os; os.read(0, 1)\n{code}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        processes.append(process)
        return process

    yield start_one
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def found(start: Start) -> Iterator[Cgroups]:
    """This host's cgroups, in a folder of this test's own; whatever is left there fails the test.

    It ends before `start` does: what is frozen could not be waited for.
    """
    cgroups_of_test = cgroups.find(f"aenv-test-{secrets.token_hex(4)}")
    if not {"cpu", "memory", "pids", "freezer"} <= set(cgroups_of_test.enforced):
        cgroups_of_test.close()
        pytest.skip(f"not enforced here: {dict(cgroups_of_test.missing)}")
    try:
        yield cgroups_of_test
        assert cgroups_of_test.leftovers() == []
    finally:
        for name in cgroups_of_test.leftovers():
            group = cgroups_of_test.group(name)
            group.kill()
            group.remove(timeout=5)
        cgroups_of_test.close()
        assert not named(cgroups_of_test.name)


def named(name: str) -> list[Path]:
    """The cgroups of this name. Others come and go meanwhile: `walk` does not mind, `rglob` does."""
    return [Path(folder) for folder, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(folder) == name]


def made(found: Cgroups, name: str = "one") -> ControlGroup:
    return found.make(name, cpus=1.5, memory_bytes=64 << 20, pids=20)


def go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    os.write(process.stdin.fileno(), b"g")


def answers(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Whether something comes from it in time; what came is read."""
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], timeout)
    return bool(ready) and bool(os.read(process.stdout.fileno(), 100))


def setting(group: ControlGroup, *files: str) -> str:
    """The content of the first of the files that exists: versions call them differently."""
    for folder in group.folders:
        for file in files:
            if os.path.exists(f"{folder}/{file}"):
                return Path(f"{folder}/{file}").read_text().strip()
    raise AssertionError(f"none of {files} in {group.folders}")


def spares(found: Cgroups) -> set[str]:
    return {
        path.name for folder in named(found.name) for path in folder.iterdir() if path.name.startswith("spare.")
    }


@pytest.mark.parametrize("is_spare", [False, True])
def test_the_kernel_knows_the_limits_that_a_group_was_made_with(found: Cgroups, is_spare: bool) -> None:
    if is_spare:
        made(found, "first").remove()
        found.refill()
    group = made(found)
    assert setting(group, "cpu.cfs_quota_us", "cpu.max").split()[0] == "150000"
    assert setting(group, "cpu.shares", "cpu.weight") in ("1536", "150")
    assert setting(group, "memory.limit_in_bytes", "memory.max") == str(64 << 20)
    assert setting(group, "pids.max") == "20"
    if (swap := Path(f"{group.folders[1]}/memory.memsw.limit_in_bytes")).exists():
        assert swap.read_text().strip() == str(64 << 20)
    group.remove()


def test_what_has_no_limit_keeps_the_default_share(found: Cgroups) -> None:
    group = found.make("free", cpus=None, memory_bytes=None, pids=None)
    assert setting(group, "cpu.shares", "cpu.weight") in ("1024", "100")
    assert setting(group, "cpu.cfs_quota_us", "cpu.max").split()[0] in ("-1", "max")
    assert setting(group, "pids.max") == "max"
    group.remove()


def test_a_memory_bomb_is_ended_inside_its_group_and_counted(found: Cgroups, start: Start) -> None:
    group, process = made(found), start("x = []\nwhile True: x.append(bytearray(1 << 20))")
    group.attach(process.pid)
    assert group.oom_kills() == 0
    go(process)
    assert process.wait(20) == -signal.SIGKILL
    assert group.oom_kills() >= 1
    group.remove()


def test_a_fork_bomb_stops_at_the_limit(found: Cgroups, start: Start) -> None:
    code = """
import signal
n = 0
try:
    while True:
        if os.fork() == 0: signal.pause()
        n += 1
except BlockingIOError:
    os.write(1, str(n).encode())
signal.pause()
"""
    group, process = made(found), start(code)
    group.attach(process.pid)
    go(process)
    assert process.stdout and os.read(process.stdout.fileno(), 10) == b"19"
    assert group.used().processes == 20
    group.kill()
    group.remove()


def test_a_busy_process_is_held_back_to_its_quota(found: Cgroups, start: Start) -> None:
    group = found.make("slow", cpus=0.2, memory_bytes=None, pids=None)
    process = start("import time\nwhile time.process_time() < 0.1: pass")
    group.attach(process.pid)
    go(process)
    process.wait(20)
    assert int(re.findall(r"nr_throttled (\d+)", setting(group, "cpu.stat"))[0]) >= 1
    group.remove()


def test_more_cpus_than_the_group_above_has_are_left_to_that_one(found: Cgroups) -> None:
    quotas = [path for folder in named(found.name) if (path := folder / "cpu.cfs_quota_us").exists()]
    if not quotas:
        pytest.skip("version 2 takes any quota")
    quotas[0].write_text("50000")
    group = made(found)
    assert setting(group, "cpu.cfs_quota_us") == "-1" and setting(group, "pids.max") == "20"
    group.remove()


def test_what_a_group_uses_is_counted(found: Cgroups, start: Start) -> None:
    code = (
        "import time\nx = bytearray(8 << 20)\nwhile time.process_time() < 0.1: pass\nos.fork()\nos.write(1, b'+')"
    )
    group, process = made(found), start(code + "\nos.read(0, 1)")
    group.attach(process.pid)
    go(process)
    assert process.stdout and len(process.stdout.read(2)) == 2
    used = group.used()
    assert used.cpu_seconds >= 0.09 and 8 << 20 <= used.memory_bytes <= 64 << 20 and used.processes == 2
    of_proc = control_group.used_by(group.processes())
    assert of_proc.cpu_seconds >= 0.09 and of_proc.memory_bytes >= 8 << 20 and of_proc.processes == 2
    group.kill()
    group.remove()
    assert group.used() == cgroups.GroupUsage(0, 0, 0)


def test_a_frozen_group_stands_still_and_goes_on_when_thawed(found: Cgroups, start: Start) -> None:
    group, process = made(found), start(f"os.fork()\n{ECHO}")
    group.attach(process.pid)
    go(process)
    go(process)
    assert answers(process, 10)
    for _ in range(2):
        group.freeze()
        go(process)
        assert not answers(process, 0.05)
        group.thaw()
        assert answers(process, 10)
    group.kill()
    group.remove()


def test_a_group_that_does_not_stop_in_time_goes_on(
    found: Cgroups, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, process = made(found), start(ECHO)
    group.attach(process.pid)
    monkeypatch.setattr(control_group, "SETTLE", -1)  # no process resists the freezer at will
    with pytest.raises(OSError, match=r"frozen|freezer"):
        group.freeze()
    go(process)
    go(process)
    assert answers(process, 10)
    group.kill()
    group.remove(timeout=5)


def test_thawing_what_is_not_frozen_changes_nothing(found: Cgroups, start: Start) -> None:
    group, process = made(found), start(ECHO)
    group.attach(process.pid)
    group.thaw()
    go(process)
    go(process)
    assert answers(process, 10)
    process.kill()
    group.remove()


def test_a_frozen_group_whose_processes_were_killed_can_be_removed(found: Cgroups, start: Start) -> None:
    group, process = made(found), start(ECHO)
    group.attach(process.pid)
    group.freeze()
    process.kill()
    group.remove()
    assert process.wait(10) == -signal.SIGKILL


def test_processes_that_flee_by_forking_are_all_ended(found: Cgroups, start: Start) -> None:
    group, process = made(found), start(FLEE)
    group.attach(process.pid)
    go(process)
    assert answers(process, 10)
    group.kill()
    group.remove()
    assert group.processes() == []


def test_processes_that_flee_are_ended_without_a_freezer_too(found: Cgroups, start: Start) -> None:
    group, process = made(found), start(FLEE)
    without = ControlGroup("one", found._enforcing, None)
    group.attach(process.pid)
    go(process)
    assert answers(process, 10)
    without.kill()
    without.remove()
    assert found.leftovers() == []


def test_a_group_that_was_removed_half_way_is_ended_where_it_is_left(found: Cgroups, start: Start) -> None:
    for gone in range(len(made(found).folders)):
        group, process = found.group("one"), start(ECHO)
        kept = [folder for number, folder in enumerate(group.folders) if number != gone and os.path.isdir(folder)]
        for folder in set(group.folders) - set(kept):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)
        for folder in kept:
            Path(folder, "cgroup.procs").write_text(str(process.pid))
        group.kill()
        group.remove()
        assert process.wait(10) == -signal.SIGKILL and found.leftovers() == []
        made(found)
    found.group("one").remove()


def test_removing_a_group_that_still_runs_says_who_is_left(found: Cgroups, start: Start) -> None:
    group, process = made(found), start(ECHO)
    group.attach(process.pid)
    with pytest.raises(OSError, match=f"still holds processes: {process.pid}") as caught:
        group.remove(timeout=0.02)
    assert caught.value.errno == errno.EBUSY and found.leftovers() == ["one"]
    process.kill()
    group.remove()
    group.remove()


def test_attaching_a_process_that_is_gone_is_told(found: Cgroups, start: Start) -> None:
    group, process = made(found), start("")
    go(process)
    process.wait(10)
    with pytest.raises(ProcessLookupError):
        group.attach(process.pid)
    group.remove()


@pytest.mark.parametrize(
    "name", ["", "..", "a/b", "../x", "A", "a.b", "one\n", "a b", "spare.1.2.3", "é", "a" * 201]
)
def test_a_name_that_could_mean_another_place_is_refused(found: Cgroups, name: str) -> None:
    with pytest.raises(InvalidRequest, match="small letters"):
        made(found, name)
    with pytest.raises(InvalidRequest, match="small letters"):
        found.group(name)
    with pytest.raises(InvalidRequest, match="small letters"):
        cgroups.find(name)


def test_a_name_that_is_taken_is_a_conflict_and_the_first_group_stays(found: Cgroups) -> None:
    first = made(found)
    found.refill(1)
    for _ in range(2):
        with pytest.raises(Conflict, match="'one' exists already"):
            made(found)
    assert setting(first, "pids.max") == "20" and found.leftovers() == ["one"] and not spares(found)
    first.remove()


def test_a_make_that_the_kernel_refuses_leaves_nothing(found: Cgroups) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match=re.escape("pids.max")):
            found.make("bad", cpus=1, memory_bytes=64 << 20, pids=-5)
        assert found.leftovers() == []
        with pytest.raises(OSError, match=re.escape("pids.max")):
            found.refill()  # which wants these limits now
        assert not spares(found)


def test_groups_that_another_process_made_can_be_found_and_removed(found: Cgroups, start: Start) -> None:
    process = start(ECHO)
    made(found, "b-2").attach(process.pid)
    made(found, "a-1")
    again = cgroups.find(found.name)
    assert again.leftovers() == ["a-1", "b-2"]
    assert again.group("b-2").processes() == [process.pid]
    with pytest.raises(NotFound, match="'c-3'"):
        again.group("c-3")
    again.group("b-2").kill()
    for name in again.leftovers():
        again.group(name).remove()


def test_spares_are_bounded_used_once_and_given_back(found: Cgroups) -> None:
    for pids in range(10, 17):
        found.make(f"kind-{pids}", cpus=1, memory_bytes=64 << 20, pids=pids).remove()
    if not found.refill(2):
        pytest.skip("version 2 cannot rename")
    assert len(spares(found)) == 2 * hierarchy.KINDS and found.leftovers() == [] and found.refill(2) == 0
    group = found.make("one", cpus=1, memory_bytes=64 << 20, pids=16)
    assert len(spares(found)) == 2 * hierarchy.KINDS - 1 and setting(group, "pids.max") == "16"
    found.make("new-kind", cpus=1, memory_bytes=64 << 20, pids=17).remove()
    assert len(spares(found)) == 2 * hierarchy.KINDS - 3, "the oldest kind gave way"
    group.remove()
    found.close()
    assert not spares(found)


def test_spares_of_a_process_that_was_killed_are_swept_by_the_next(found: Cgroups, start: Start) -> None:
    made(found).remove()
    found.refill(1)
    dead = start("")
    go(dead)
    dead.wait(10)
    # Of a process that has ended; and of one whose pid this process has got since, as in a container.
    left = {f"spare.{dead.pid}-1.0.1", f"spare.{os.getpid()}-1.0.1"}
    for spare in spares(found):
        for folder in named(spare):
            for name in left:
                (folder.parent / name).mkdir()
    alive = spares(found) - left
    cgroups.find(found.name)
    assert spares(found) == alive


def test_moves_are_favoured_once_and_not_any_more_when_that_is_undone(tmp_path: Path) -> None:
    if cgroup_moves.is_favoured():
        pytest.skip("favoured by somebody already")
    try:
        favoured_moves.favour_moves(tmp_path)
        favoured_moves.favour_moves(tmp_path)
        assert cgroup_moves.is_favoured()
    finally:
        favoured_moves.unfavour(tmp_path)
    assert not cgroup_moves.is_favoured() and list(tmp_path.iterdir()) == []
    favoured_moves.unfavour(tmp_path)


def test_a_group_can_be_made_when_another_process_has_closed_the_same_place() -> None:
    name = f"aenv-test-{secrets.token_hex(4)}"
    ours, others = cgroups.find(name), cgroups.find(name)
    others.close()
    ours.make("late", cpus=None, memory_bytes=None, pids=10).remove()
    ours.close()
