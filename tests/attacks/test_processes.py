"""Attacks on processes, and instances that want to stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import psutil
import pytest

from tests.attacks import names
from tests.attacks.engines import AttackedEngine, Refused
from tests.attacks.outside import THROWAWAY, Outside

DEAF = """
import os, signal
for number in range(1, 65):
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    except (OSError, ValueError):
        pass
for how in ("stopped", "spinning"):
    if os.fork() == 0:
        os.setsid()
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            pass
os.kill(os.getpid(), signal.SIGSTOP)
os.kill(1, signal.SIGSTOP)
said = os.getpid()
"""
CRASH = "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, ({0}, {0})); ctypes.string_at(0)"


@pytest.fixture(scope="module")
def verdicts(engine: AttackedEngine, instance: str, given: dict[str, Any]) -> Any:
    return {how: engine.attack(instance, "processes", names("processes"), given, how) for how in ("tool", "exec")}


@pytest.mark.parametrize("how", ["tool", "exec"])
@pytest.mark.parametrize("name", names("processes"))
def test_an_attack_on_processes_is_contained(verdicts: Any, name: str, how: str) -> None:
    assert verdicts[how][name]["succeeded"] is False, verdicts[how][name]["said"]


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", names("processes"))
def test_an_attack_on_processes_succeeds_outside(outside: Outside, name: str) -> None:
    outside.attack("processes", name, THROWAWAY if name == "enter_namespaces_of_others" else ())


# kill(-1)


def test_to_kill_everybody_reaches_nobody_outside(
    engine: AttackedEngine, instances: Any, host: dict[str, Any]
) -> None:
    attacker, neighbour = instances(), instances()
    said = engine.ask("exec", id=attacker, command=["python3", "-c", "import os; os.kill(-1, 9); print('all')"])
    assert said["stdout"] in ("", "all\n")
    engine.evaluate(attacker, "import os\ntry: os.kill(-1, 9)\nexcept ProcessLookupError: pass")
    assert psutil.pid_exists(host["victim"])
    assert engine.evaluate(neighbour, "said = 1") == 1
    assert engine.evaluate(attacker, "said = 2") == 2  # nor its own runtime, the first process of its namespace


def test_to_kill_everybody_succeeds_outside() -> None:
    script = 'sleep 3600 & victim=$!; python3 -c "import os; os.kill(-1, 9)"; wait $victim; echo $?'
    done = subprocess.run([*THROWAWAY, "sh", "-c", script], capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == [str(128 + signal.SIGKILL)]


# Instances that end themselves, or do not want to end


def test_an_instance_that_ends_its_own_runtime_is_over_with_a_reason(engine: AttackedEngine) -> None:
    created = engine.ask("create")
    code = "import os, subprocess; subprocess.Popen(['sleep', '3600'], start_new_session=True); os._exit(7)"
    with pytest.raises(Refused):
        engine.evaluate(created["id"], code)
    assert engine.ask("ended", id=created["id"]) == "its process exited with code 7"
    engine.ask("destroy", id=created["id"])
    assert not psutil.pid_exists(created["pid"])
    assert created["id"] not in engine.ask("running")


def test_an_instance_that_stops_itself_and_hears_nothing_is_ended(engine: AttackedEngine) -> None:
    created = engine.ask("create", limits={"cpus": 0.5} if engine.is_root else {})
    assert engine.evaluate(created["id"], DEAF) == 1
    tree = [psutil.Process(created["pid"]), *psutil.Process(created["pid"]).children(recursive=True)]
    assert len(tree) == 3
    engine.ask("destroy", id=created["id"])
    assert psutil.wait_procs(tree, timeout=20)[1] == []  # its parent may still have to collect the first


# Core dumps


def test_a_crash_leaves_no_core(engine: AttackedEngine, instances: Any) -> None:
    id = instances()
    said = engine.ask("exec", id=id, command=["python3", "-c", CRASH.format("resource.RLIM_INFINITY")])
    assert "ValueError" in said["stderr"] or "PermissionError" in said["stderr"]  # the limit cannot be lifted
    said = engine.ask("exec", id=id, command=["python3", "-c", CRASH.format(0)])
    assert said["code"] == 128 + signal.SIGSEGV
    assert engine.ask("list", id=id) == []


def test_a_crash_leaves_a_core_outside(tmp_path: Any) -> None:
    with open("/proc/sys/kernel/core_pattern") as file:
        if not (pattern := file.read().strip()).startswith("core"):
            pytest.skip(f"cores go elsewhere on this host: {pattern}")
    command = [*THROWAWAY, "python3", "-c", CRASH.format(1 << 20)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=20)
    if "not allowed to raise" in done.stderr:
        pytest.skip("the limit of cores is 0 around these tests")
    assert [name for name in os.listdir(tmp_path) if name.startswith("core")], json.dumps(done.stderr)
