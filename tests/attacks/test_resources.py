"""Attacks on what all instances share: contained by limits, or, where a host has none, said to be so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import ATTACKS, names
from tests.attacks.engines import PROGRAMS, AttackedEngine
from tests.attacks.outside import THROWAWAY, Outside
from tests.ordinary import OrdinaryUser

MEBIBYTE = 1 << 20
STORAGE = 32  # MiB; as many files as it has pages
WANTED = {"processes": 300, "mebibytes": 160, "files": 12_000, "terminals": 1000, "open_files": 3000}
LIMITS = {"storage_bytes": STORAGE * MEBIBYTE, "open_files": 2000}
GROUPS = {"pids": 100, "memory_bytes": 128 * MEBIBYTE, "cpus": 1.0}
BOUNDED_FOR_ALL = [
    attack.name for attack in ATTACKS if attack.family == "resources" and attack.has_program and attack.for_user
]
BY_GROUPS = [name for name in names("resources") if name not in BOUNDED_FOR_ALL]


@pytest.fixture(scope="module")
def limited(engine: AttackedEngine) -> Any:
    created = engine.ask("create", limits={**LIMITS, **GROUPS})
    yield created
    engine.ask("destroy", id=created["id"])


@pytest.fixture(scope="module")
def neighbour(engine: AttackedEngine) -> Any:
    id = engine.ask("create", limits={**LIMITS, **GROUPS})["id"]
    yield id
    engine.ask("destroy", id=id)


@pytest.fixture
def orders() -> dict[str, Any]:
    return {**WANTED, "own_folder": "/workspace", "token": ""}


@pytest.mark.parametrize("name", BOUNDED_FOR_ALL)
def test_a_bomb_is_contained_and_the_neighbour_has_its_own(
    engine: AttackedEngine, limited: Any, neighbour: str, orders: dict[str, Any], name: str
) -> None:
    verdict = engine.attack(limited["id"], "resources", [name], orders, "exec")[name]
    assert verdict["succeeded"] is False, verdict["said"]
    assert engine.ask("put", id=neighbour, path="file", text="x" * MEBIBYTE) == MEBIBYTE
    said = engine.ask("exec", id=neighbour, command=["python3", "-c", "import pty; print(len(pty.openpty()))"])
    assert said["stdout"] == "2\n", said


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", BY_GROUPS)
def test_a_bomb_is_contained_by_control_groups(
    engine: AttackedEngine, instances: Any, neighbour: str, orders: dict[str, Any], name: str
) -> None:
    id = instances(limits={**LIMITS, **GROUPS})
    verdict = engine.attack(id, "resources", [name], orders, "exec")[name]
    assert verdict["succeeded"] is not True, verdict["said"]
    if id in engine.ask("running"):
        assert engine.evaluate(id, "said = 'alive'") == "alive"
    else:  # with version 2 of control groups everything in a group ends when its memory is used up
        assert name == "memory_bomb"
        assert engine.ask("ended", id=id) == "it used more memory than its limit"
    assert engine.evaluate(neighbour, "said = 'alive'") == "alive"


@pytest.mark.parametrize("engine", ["root"], indirect=True)
def test_files_count_as_memory(engine: AttackedEngine, instances: Any, orders: dict[str, Any]) -> None:
    id = instances(limits={**LIMITS, **GROUPS, "memory_bytes": 64 * MEBIBYTE, "storage_bytes": 256 * MEBIBYTE})
    verdict = engine.attack(id, "resources", ["disk_fill"], orders, "exec")["disk_fill"]
    assert verdict["succeeded"] is not True, verdict["said"]


@pytest.mark.parametrize("engine", ["user"], indirect=True)
def test_what_no_control_group_enforces_is_said(engine: AttackedEngine, limited: Any) -> None:
    told = dict(text.split(": ", 1) for text in limited["not_enforced"])
    assert sorted(told) == ["cpu", "memory", "pids"]
    assert all("; " in reason for reason in told.values())  # why, and what to do
    checks = engine.ask("checks")
    for name in told:
        is_fine, found, fix = checks[f"cgroup {name}"]
        assert (is_fine, found.startswith("not enforced"), bool(fix)) == (False, True, True)


@pytest.mark.parametrize("engine", ["user"], indirect=True)
def test_a_limit_that_nobody_asked_for_is_not_missed(engine: AttackedEngine, instances: Any) -> None:
    created = engine.ask("create")
    assert [text.split(":")[0] for text in created["not_enforced"]] == ["memory", "pids"]  # those with a default
    engine.ask("destroy", id=created["id"])


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", names("resources"))
def test_a_bomb_succeeds_outside(outside: Outside, tmp_path: Path, name: str) -> None:
    # On a disk of our own, which is gone with the command.
    disk = ["sh", "-c", 'mount -t tmpfs -o size=256m none "$0" && mount --bind "$0" /dev/shm && exec "$@"']
    outside.attack("resources", name, [*THROWAWAY, *disk, str(tmp_path)], **WANTED, own_folder=str(tmp_path))


# The log


def test_endless_printing_stays_in_the_instance(engine: AttackedEngine, instances: Any) -> None:
    id = instances(limits=LIMITS)
    before = _size(engine.home)
    said = engine.evaluate(
        id,
        f"""
        import os
        said = 0
        try:
            while said < {4 * STORAGE}:
                said += os.write(1, b"x" * {MEBIBYTE}) / {MEBIBYTE}
        except OSError:
            pass
        """,
    )
    assert 1 <= said <= STORAGE
    assert engine.ask("logs", id=id) <= STORAGE * MEBIBYTE
    assert _size(engine.home) - before < MEBIBYTE
    assert engine.evaluate(id, "said = 'alive'") == "alive"


def test_a_log_on_the_hosts_disk_would_grow(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        subprocess.run(["head", "-c", str(2 * STORAGE * MEBIBYTE), "/dev/zero"], stdout=log, check=True)
    assert _size(tmp_path) == 2 * STORAGE * MEBIBYTE


# CPU: measured in what the kernel counts for each, so that a busy machine changes nothing


@pytest.mark.parametrize("engine", ["root"], indirect=True)
def test_a_spinning_instance_leaves_its_neighbour_its_share(engine: AttackedEngine, instances: Any) -> None:
    spinning, working = (instances(limits={"cpus": 0.5}) for _ in range(2))
    load = "import sys; sys.path.insert(0, '/environment/programs'); import resources; "
    engine.evaluate(spinning, f"{load} resources.spin(8)")
    before = [engine.ask("used", id=id)["cpu_seconds"] for id in (spinning, working)]
    engine.evaluate(working, f"{load} resources.burn(0.5)")
    after = [engine.ask("used", id=id)["cpu_seconds"] for id in (spinning, working)]
    of_spinning, of_working = (late - early for early, late in zip(before, after, strict=True))
    assert of_working >= 0.5
    assert of_spinning <= 2 * of_working


def test_eight_that_spin_take_most_of_a_processor_outside() -> None:
    code = f"""if True:
        import os, resource, signal, sys
        sys.path.insert(0, {str(PROGRAMS)!r})
        import resources
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        resources.spin(8)
        resources.burn(0.1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
    """
    command = ["python3", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True, timeout=20)
    assert float(done.stdout) > 0.2  # and the one that worked has got 0.1


# The kernel's pools that are counted by user


def test_an_instance_cannot_take_all_watches_of_the_host(
    engine: AttackedEngine, instances: Any, user: OrdinaryUser
) -> None:
    id, other = instances(), instances()
    load = "import sys; sys.path.insert(0, '/environment/programs'); import resources; "
    taken = engine.evaluate(id, f"{load} kept.extend(resources.hold_watches(5000)); said = len(kept)")
    assert taken > 0
    engine.evaluate(other, "print('hello', flush=True)")
    assert "hello" in engine.ask("followed", id=other)  # which needs a watch of the gateway's own user
    become = user.command() if engine.user else []
    done = subprocess.run([*become, str(user.python), "-c", _WATCH.format(1)], capture_output=True, text=True)
    assert done.stdout == "1\n"


def test_all_watches_of_a_user_can_be_taken_outside(user: OrdinaryUser) -> None:
    with open("/proc/sys/fs/inotify/max_user_instances") as file:
        most = int(file.read())
    if most > 4096:
        pytest.skip(f"this host gives each user {most} watches")
    done = subprocess.run(
        [*user.command(), str(user.python), "-c", _WATCH.format(most + 1)], capture_output=True, text=True
    )
    assert int(done.stdout) <= most


_WATCH = f"""
import sys; sys.path.insert(0, {str(PROGRAMS)!r})
import resources
print(len(resources.hold_watches({{}})))
"""


def test_descriptors_in_flight_do_not_stop_new_instances(engine: AttackedEngine, instances: Any) -> None:
    id = instances()
    load = "import sys; sys.path.insert(0, '/environment/programs'); import resources; "
    assert engine.evaluate(
        id, f"{load} kept.extend(resources.hold_descriptors_in_flight(20000)); said = len(kept)"
    )
    assert engine.evaluate(instances(), "said = 'alive'") == "alive"


def test_descriptors_in_flight_stop_others_of_the_same_user_outside(user: OrdinaryUser) -> None:
    code = f"""if True:
        import array, resource, socket, sys
        sys.path.insert(0, {str(PROGRAMS)!r})
        import resources
        held = resources.hold_descriptors_in_flight(20000)
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
        one, other = socket.socketpair()
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    """
    done = subprocess.run([*user.command(), str(user.python), "-c", code], capture_output=True, text=True)
    assert "Too many references" in done.stderr


def _size(folder: Path) -> int:
    return sum(os.stat(path, follow_symlinks=False).st_size for path in folder.rglob("*"))
