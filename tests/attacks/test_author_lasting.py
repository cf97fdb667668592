"""The author of an environment as the attacker: what would outlast its instances, or hold up their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aenv.attacks.projects import make_project
from tests.attacks.engines import AttackedEngine, Refused, attacked_engine
from tests.ordinary import OrdinaryUser

USE_RIGHTS = """
import os, signal
from aenv.isolation.sandbox import system

def use_rights():
    system.permit_capabilities(18, 21, in_use=True)  # the two that a fork needs to enter its room
"""


@pytest.fixture(params=["root", "user"])
def own_engine(request: pytest.FixtureRequest, user: OrdinaryUser) -> Iterator[AttackedEngine]:
    """One that a test may end."""
    with attacked_engine(user if request.param == "user" else None) as engine:
        yield engine


def make(engine: AttackedEngine, code: str) -> str:
    """The project of a hostile author, which goes with the engine's folder."""
    folder = make_project(engine.folder / f"author-{os.urandom(4).hex()}", "pushed")
    (folder / "orders.json").write_text(json.dumps({"code": textwrap.dedent(code), "attacks": {}, "given": {}}))
    if engine.user:
        engine.user.give(folder)
    return str(folder)


def named(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if token in (process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_what_hides_in_a_pid_namespace_that_is_no_instances_ends_with_the_engine(
    own_engine: AttackedEngine,
) -> None:
    token = f"left-{os.urandom(8).hex()}"
    hides = f"""
if os.fork() == 0:
    os.setsid()
    use_rights()
    if system.fork_as_init(tells_modules=False) == 0:
        os.execv("/bin/sh", ["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done", "{token}"])
    os._exit(0)
"""
    id = own_engine.ask("create", project=make(own_engine, USE_RIGHTS + hides))["id"]
    hidden = named(token)
    assert hidden, "it did not start, so the attack means nothing"
    own_engine.ask("destroy", id=id)
    own_engine.close()
    _, left = psutil.wait_procs(hidden, timeout=10)
    for process in left:
        process.kill()
    assert left == []


HOLDS = """
import os, signal
from aenv.isolation.sandbox import system

fork = system.fork_as_init

def fork_and_hold(**named):
    pid = fork(**named)
    if pid > 0 and os.fork() == 0:
        try:
            system.setns(os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY), "pid")
        except OSError:
            os._exit(0)  # it may not
        os.fork()  # the child is in the pid namespace of the instance, and is never collected
        while True:
            signal.pause()
    return pid

system.fork_as_init = fork_and_hold
"""


def test_an_end_that_is_held_up_from_outside_the_instance_comes(own_engine: AttackedEngine) -> None:
    project = make(own_engine, HOLDS)
    held = own_engine.ask("create", project=project)["id"]
    other = own_engine.ask("create", project=project)["id"]
    own_engine.ask("destroy", id=held)
    assert own_engine.ask("running") == [other], "the other instance ended with it"
    assert own_engine.ask("call", id=other, tool="said")["pid"]
    own_engine.ask("destroy", id=other)
    own_engine.close()


def test_no_instance_is_in_a_pid_namespace_of_the_authors(own_engine: AttackedEngine) -> None:
    """It would be there at the mercy of processes that the stager cannot tell from its own."""
    nests = """
use_rights()
enter = system.setns
system.setns = lambda descriptor, *kinds: None if kinds == ("user",) else enter(descriptor, *kinds)
os.fork = lambda: system.fork_as_init(tells_modules=False)
"""
    with pytest.raises(Refused, match="not the first of a pid namespace"):
        own_engine.ask("create", project=make(own_engine, USE_RIGHTS + nests))


RUNS = """
import json, os, signal, time
from aenv.inside.zygote import ending

def start(then):
    pid = os.fork()
    if pid == 0:
        then()
        os._exit(0)
    return pid

def run():
    for _ in range(2000):  # if it is not ended, it ends at last
        if os.fork():
            os._exit(0)

def lead():
    start(signal.pause)
    signal.pause()

leader = start(lead)
stopped = start(lambda: os.kill(os.getpid(), signal.SIGSTOP))
waiting = start(signal.pause)
for _ in range(8):
    start(run)
while not open(f"/proc/{leader}/task/{leader}/children").read():
    pass
ending.end_others({leader, stopped})
print(json.dumps({
    "left": sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()),
    "meant": [os.getpid(), leader, stopped],
    "child": int(open(f"/proc/{leader}/task/{leader}/children").read()),
    "states": [open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] for pid in (leader, stopped)],
}))
"""


def test_what_forks_and_ends_again_and_again_is_ended_and_instances_go_on() -> None:
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run([*apart, sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    [child] = {*found["left"]} - {*found["meant"]}
    assert child == found["child"], "only the child of the one that leads is left besides"
    assert found["states"][1] == "T", "what was stopped before stays stopped"
    assert found["states"][0] != "T"


@pytest.mark.parametrize("own_engine", ["root"], indirect=True)
def test_ends_that_are_never_told_give_no_more_room(own_engine: AttackedEngine) -> None:
    """The limits of what is loaded ahead grow with the instances that live, and with no others."""
    silent = "import sys\nsys.modules['__main__']._Forker._collect = lambda self: None"
    project = make(own_engine, silent)
    for _ in range(18):  # one step is 16
        own_engine.ask("destroy", id=own_engine.ask("create", project=project)["id"])
    assert _limits(own_engine) == {64 + 16}


def _limits(engine: AttackedEngine) -> set[int]:
    """Of processes, for what this engine has loaded ahead."""
    groups = Path("/sys/fs/cgroup").glob(f"**/zygote-{engine._process.pid}-*/pids.max")
    return {int(file.read_text()) for file in groups}


SAYS_THEN_BREAKS = """
import os, socket, stat
from aenv.isolation.sandbox import protocol

encode = protocol.encode

def say_more(message):
    said = encode(message)
    if isinstance(message, protocol.Loaded):
        for name in os.listdir("/proc/self/fd"):
            if os.path.exists(f"/proc/self/fd/{name}") and stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                line = socket.socket(fileno=os.dup(int(name)))
                if line.type == socket.SOCK_SEQPACKET:
                    line.send(said)
                    line.send(b"nonsense")
        os._exit(0)
    return said

protocol.encode = say_more
"""


def test_a_zygote_that_ends_when_it_has_just_started_fails_the_create_at_once(own_engine: AttackedEngine) -> None:
    """Not after the time that an instance may take to start, which is longer than this waits."""
    with pytest.raises(Refused, match="broke the protocol"):
        own_engine.ask("create", project=make(own_engine, SAYS_THEN_BREAKS))


def test_ends_that_are_told_without_end_end_the_environment(own_engine: AttackedEngine) -> None:
    """Who hears them is in no control group."""
    floods = """
import sys
from aenv.isolation.sandbox import protocol

forker = sys.modules["__main__"]._Forker

def say_without_end(self):
    while True:
        self._stager.send(protocol.encode(protocol.Ended(10**9, 0)) + b" " * 60000)

forker._obey = say_without_end  # when it is asked for its first instance
"""
    with pytest.raises(Refused, match="Ended of the wrong process, or at the wrong time"):
        own_engine.ask("create", project=make(own_engine, floods))
