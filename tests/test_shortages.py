"""A host that runs out of something: the creates that meet it say what, and those after it succeed."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.base.http1 import Pool
from aenv.engines.base import Address, InstanceSpec
from aenv.engines.process import ProcessEngine
from tests.gateways import composed, listening, make_project, running_gateway
from tests.test_gateway_process import Program

PIDS = Path("/sys/fs/cgroup/pids")
FORKS_THREE_TIMES = """
import errno

from aenv.isolation.sandbox import system

fork, forks = system.fork_as_init, []


def fork_as_init(**options):
    forks.append(1)
    if len(forks) > 3:
        raise OSError(errno.EINVAL, "invalid argument")
    return fork(**options)


system.fork_as_init = fork_as_init
"""


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A control group for a gateway, with all that it starts."""
    if not (PIDS / "cgroup.procs").exists():
        pytest.skip("needs the pids controller of cgroup version 1")
    group = PIDS / f"aenv-test-{os.getpid()}"
    group.mkdir()
    yield group
    group.rmdir()


def started_in(group: Path, home: Path, *projects: Path) -> Program:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next(line.split(":")[2] for line in lines if line.split(":")[1] == "pids")
    (group / "cgroup.procs").write_text(str(os.getpid()))  # the program begins where its parent is
    try:
        return Program(home, *projects, engine="native")
    finally:
        Path(f"{PIDS}{own}/cgroup.procs").write_text(str(os.getpid()))


@pytest.mark.slow  # sixty processes
async def test_creates_succeed_again_once_the_host_has_processes_to_spare(
    tmp_path: Path, few_processes: Path
) -> None:
    home = tmp_path / "home"
    program = started_in(few_processes, home, make_project(tmp_path))
    try:
        async with Pool() as pool:
            gateway = await program.ready(pool, home)
            made = [(await gateway.create())["id"]]
            (few_processes / "pids.max").write_text("60")
            refused: list[str] = []
            while len(refused) < 5:
                status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo"})
                if status == 200:
                    made.append(reply["data"]["id"])
                else:
                    assert status == 503, reply
                    refused.append(reply["message"])
            assert "no more processes" in refused[0]
            (few_processes / "pids.max").write_text("max")
            await asyncio.gather(*(gateway.ask("DELETE", f"/env-instance/{id}") for id in made))
            for _ in range(10):
                await gateway.create()
    finally:
        await program.end(signal.SIGTERM)


class Starved(ProcessEngine):
    """Every create meets this errno."""

    code = 0

    async def create(self, spec: InstanceSpec) -> Address:
        raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize(
    ("code", "what"), [(errno.EMFILE, "open files"), (errno.ENOMEM, "memory"), (errno.EAGAIN, "processes")]
)
async def test_a_create_that_meets_a_limit_of_the_host_is_503_and_says_of_what(
    tmp_path: Path, code: int, what: str
) -> None:
    home = tmp_path / "home"
    engine = Starved(home)
    engine.code = code
    async with composed(home, make_project(tmp_path), engine=engine) as made, listening(made) as gateway:
        status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo"})
        assert status == 503 and f"the host has no more {what}" in reply["message"]


async def test_a_zygote_that_cannot_fork_is_replaced(tmp_path: Path) -> None:
    project = make_project(tmp_path, preload=["three"])
    (project / "src" / "three.py").write_text(FORKS_THREE_TIMES)
    async with running_gateway(tmp_path / "home", project, engine="native") as gateway:
        asked = [(await gateway.ask("POST", "/env-instance", {"envName": "echo"}))[0] for _ in range(12)]
        # How many are forked ahead differs; but each zygote fails once at most, and forks three times.
        assert asked.count(200) > 3
        assert (500, 500) not in itertools.pairwise(asked)


async def test_a_batch_that_is_refused_for_a_while_can_be_asked_for_again_with_the_same_ids(
    tmp_path: Path,
) -> None:
    refused = [True]

    class Short(ProcessEngine):
        async def create(self, spec: InstanceSpec) -> Address:
            if spec.id == ids[1] and refused:
                refused.clear()
                raise OSError(errno.ENOMEM, "out of memory")
            return await super().create(spec)

    ids = [f"echo-{letter * 26}" for letter in "ef"]
    body = {"envName": "echo@1.0.0", "count": 2, "ids": ids}
    engine = Short(tmp_path / "home")
    async with (
        composed(tmp_path / "home", make_project(tmp_path), engine=engine) as made,
        listening(made) as gateway,
    ):
        assert (await gateway.ask("POST", "/env-instances", body))[0] == 503
        status, reply = await gateway.ask("POST", "/env-instances", body)
        assert (status, [made["id"] for made in reply["data"]]) == (200, ids)
