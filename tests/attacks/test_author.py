"""The author of an environment as the attacker: code that runs before there is an instance.

It gets into the process that instances are forked from by a decorator that looks as if it only defined a tool, or
by the modules that `preload` names. From there it attacks at once; or it changes the functions by which a fork
becomes an instance, and attacks from that, with all capabilities that a fork has for a moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.attacks.projects import make_project
from tests.attacks import names
from tests.attacks.engines import PROGRAMS, AttackedEngine, Refused
from tests.attacks.outside import THROWAWAY

# A fork that never shuts itself in: the capabilities that it enters its room with stay.
STAYS_OPEN = "from aenv.inside.zygote import instance\ninstance.confine = lambda *given, **named: None"
FAMILIES = ("files", "kernel", "network", "processes")
# What such a fork can do to itself: it has two capabilities over a user namespace that holds nothing of others.
OWN_AFFAIRS = {
    "clone_into_namespaces",  # a pid namespace, below its own
    "enter_namespaces_of_others",  # it has a descriptor of none but its own
    "regain_capabilities",  # those two
}

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def make(engine: AttackedEngine) -> Iterator[Make]:
    """Projects of a hostile author."""
    made: list[Path] = []

    def make(
        code: str = "", attacks: dict[str, list[str]] | None = None, given: dict[str, Any] | None = None
    ) -> Path:
        folder = make_project(engine.folder / f"author-{len(made)}-{os.urandom(4).hex()}", "pushed")
        orders = {"code": textwrap.dedent(code), "attacks": attacks or {}, "given": given or {}}
        (folder / "orders.json").write_text(json.dumps(orders))
        if engine.user:
            engine.user.give(folder)
        made.append(folder)
        return folder

    yield make
    for folder in made:
        shutil.rmtree(folder)


@contextlib.contextmanager
def created(engine: AttackedEngine, project: Path, **arguments: Any) -> Iterator[str]:
    # It is answered when all attacks have been made: longer than others on a busy machine.
    id = engine.reply(engine.start("create", project=str(project), **arguments), timeout=60)["id"]
    try:
        yield id
    finally:
        engine.ask("destroy", id=id)


@pytest.fixture(scope="module")
def from_zygote(engine: AttackedEngine, make: Make, given: dict[str, Any]) -> Any:
    told = {**given, "own_folder": "/workspace"}
    project = make(attacks={family: [*names(family)] for family in FAMILIES}, given=told)
    with created(engine, project) as id:
        said = engine.ask("call", id=id, tool="said")
    assert said["pid"] > 1, "it did not run before there was an instance"
    return said


@pytest.fixture(scope="module")
def from_fork(engine: AttackedEngine, make: Make, given: dict[str, Any]) -> Any:
    with created(engine, make(STAYS_OPEN)) as id:
        status = engine.ask("call", id=id, tool="attack", family="author", name="capabilities", given=given)
        assert status["succeeded"], "it has no capabilities, so the attacks mean nothing"
        return {
            name: engine.ask("call", id=id, tool="attack", family=family, name=name, given=given)
            for family in FAMILIES
            for name in names(family)
        }


@pytest.mark.parametrize("name", [name for family in FAMILIES for name in names(family)])
def test_an_attack_of_the_author_before_there_is_an_instance_is_contained(from_zygote: Any, name: str) -> None:
    # Two capabilities can be put to use: those that a fork needs to enter its room.
    assert from_zygote[name]["succeeded"] is (name == "regain_capabilities"), from_zygote[name]["said"]


@pytest.mark.parametrize("name", [name for family in FAMILIES for name in names(family)])
def test_an_attack_of_the_author_from_a_fork_that_is_not_shut_in_is_contained(from_fork: Any, name: str) -> None:
    assert from_fork[name]["succeeded"] is False or name in OWN_AFFAIRS, from_fork[name]["said"]


def test_code_of_a_required_package_that_runs_when_it_is_found_is_confined(engine: AttackedEngine) -> None:
    layer = engine.folder / f"layer-{os.urandom(4).hex()}"
    layer.mkdir()
    code = "import builtins, os; builtins.found = (os.getpid(), open('/proc/self/status').read())\n"
    (layer / "hostile.pth").write_text(code)
    if engine.user:
        engine.user.give(layer)
    id = engine.ask("create", requirements=str(layer))["id"]
    pid, status = engine.evaluate(id, "import builtins; said = builtins.found")
    engine.ask("destroy", id=id)
    shutil.rmtree(layer)
    assert pid > 1, "it did not run before there was an instance"
    told = dict(line.split(":\t") for line in status.splitlines())
    assert (told["Seccomp"], told["NoNewPrivs"], told["CapEff"]) == ("2", "1", "0" * 16)


AUTHORS = [name for name in names("author") if name != "hold_a_listener"]  # which has a test of its own


@pytest.fixture(scope="module")
def verdicts(engine: AttackedEngine, make: Make, given: dict[str, Any]) -> Any:
    with created(engine, make(attacks={"author": AUTHORS}, given=given)) as id:
        # The next command is started by code of ours, which an author has once rewritten.
        ran = engine.ask("exec", id=id, command=["cat", "/proc/self/status"])
        assert "NoNewPrivs:\t1\n" in ran["stdout"]
        assert "CapEff:\t0000000000000000\n" in ran["stdout"]
        return engine.ask("call", id=id, tool="said")


@pytest.mark.parametrize("name", AUTHORS)
def test_what_only_an_author_can_try_is_contained(verdicts: Any, name: str) -> None:
    assert verdicts[name]["succeeded"] is False, verdicts[name]["said"]


@pytest.mark.parametrize("engine", ["root"], indirect=True)
@pytest.mark.parametrize("name", [name for name in AUTHORS if "stager" not in name])
def test_what_an_author_tries_succeeds_outside(engine: AttackedEngine, given: dict[str, Any], name: str) -> None:
    orders = json.dumps({**given, "attacks": [name], "is_outside": True})
    command = [*THROWAWAY, sys.executable, str(PROGRAMS / "author.py"), orders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert json.loads(done.stdout)["succeeded"] is True, done.stdout + done.stderr


# Messages that are forged


FORGERIES = {
    "says nothing that is a message": "channel.send(os.urandom(200))",
    "says that it has loaded twice": "channel.send(said_as(protocol.Loaded(False)))",
    "waits as a process that is not a child": "channel.send(said_as(protocol.Waiting()))",
    "tells of an end that is not its own to tell": "channel.send(said_as(protocol.Ended(1, 0)))",
    "speaks for the stager": "channel.send(said_as(protocol.Prepared(1, ())))",
    "says too much": "channel.send(b'x' * (protocol.MAX_BYTES + 1))",
    "nests without end": "channel.send(b'[' * 60000)",
    "sends a pidfd of its own choice": (
        "socket.send_fds(channel, [said_as(protocol.Waiting())], [os.pidfd_open(os.getpid())])"
    ),
    "ends": "os._exit(0)",
}
FORGE = """
import os, socket, stat
from aenv.isolation.sandbox import protocol

said_as = protocol.encode
[number] = [
    int(name)
    for name in os.listdir("/proc/self/fd")
    if os.path.exists(f"/proc/self/fd/{name}")
    and stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode)
    and socket.socket(fileno=os.dup(int(name))).type == socket.SOCK_SEQPACKET
]
channel = socket.socket(fileno=os.dup(number))
"""


@pytest.mark.parametrize("what", FORGERIES)
def test_a_zygote_that_forges_messages_ends_its_own_environment_alone(
    engine: AttackedEngine, make: Make, instance: str, what: str
) -> None:
    with pytest.raises(Refused) as caught, created(engine, make(FORGE + FORGERIES[what])):
        pass
    assert caught.value.kind == "StartFailed"
    assert engine.evaluate(instance, "said = 'alive'") == "alive"
    with created(engine, engine.project) as other:
        assert engine.evaluate(other, "said = 'alive'") == "alive"


FAKES = {
    "is not in a pid namespace of its own": """
        import os
        from aenv.isolation.sandbox import system
        system.fork_as_init = lambda **named: os.fork()
    """,
    "is not a child of what forks": """
        import os, signal
        from aenv.inside.zygote import instance
        begin = instance.begin
        instance.begin = lambda *given: begin(*given) if os.fork() == 0 else signal.pause()
    """,
}


@pytest.mark.parametrize("what", FAKES)
def test_a_process_is_no_instance_unless_the_kernel_says_so(engine: AttackedEngine, make: Make, what: str) -> None:
    with pytest.raises(Refused) as caught, created(engine, make(FAKES[what])):
        pass
    assert caught.value.kind == "StartFailed"
    assert "broke the protocol" in str(caught.value)


# Limits, and what is left


@pytest.mark.parametrize("engine", ["root"], indirect=True)
def test_what_an_author_loads_ahead_is_limited_like_an_instance(engine: AttackedEngine, make: Make) -> None:
    limits = {"pids": 64, "memory_bytes": 256 << 20}
    forks = """
        import os, signal
        made = []
        try:
            while len(made) < 1500:
                child = os.fork()
                if child == 0:
                    signal.pause()
                made.append(child)
        except OSError:
            pass
        said["made"] = len(made)
        for child in made:  # collected, or they would count on
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    """
    with created(engine, make(forks), limits=limits) as id:
        assert 0 < engine.ask("call", id=id, tool="said")["made"] < 200
    fills = "kept = []\nfor _ in range(1024): kept.append(b'x' * (1 << 20))"
    with (
        pytest.raises(Refused, match="used more memory than its limit"),
        created(engine, make(fills), limits=limits),
    ):
        pass


def test_what_an_author_has_started_ends_with_the_engine(engine: AttackedEngine, make: Make) -> None:
    token = f"left-{os.urandom(8).hex()}"
    starts = f"""
        import os, subprocess, sys
        if os.fork() == 0:
            os.setsid()
            os.execv("/bin/sh", ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done", "{token}"])
        os._exit(3)
    """
    with pytest.raises(Refused, match="code 3"), created(engine, make(starts)):
        pass
    psutil.wait_procs([process for process in psutil.process_iter() if token in _words(process)], timeout=10)
    assert [process.pid for process in psutil.process_iter() if token in _words(process)] == []


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def test_no_listener_of_the_way_out_is_in_the_hands_of_an_instance(engine: AttackedEngine, make: Make) -> None:
    with created(engine, make(STAYS_OPEN), network="egress", hosts=("example.com",)) as id:
        verdict = engine.ask("call", id=id, tool="attack", family="author", name="hold_a_listener", given={})
    assert verdict["succeeded"] is False, verdict["said"]
