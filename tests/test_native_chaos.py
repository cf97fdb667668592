"""Thousands of instances, and kill -9 of whatever takes part, at any moment: the host is then as it was before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.base.errors import NetworkError
from aenv.base.http1 import Pool
from tests.gateways import Gateway, make_project, new_id
from tests.native import traces
from tests.test_gateway_process import Program

ATTEMPTS = 2000
AT_ONCE = 16
EVERY = 40  # attempts between two kills
KEPT = 24  # instances, which are there while what they depend on is killed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # two thousand instances on two cores


HELPERS = ("maker", "data worker", "zygote", "stager", "launcher")


class Chaos:
    """A gateway that is killed and started again, and those that use it meanwhile."""

    def __init__(self, home: Path, project: Path, pool: Pool, most: int) -> None:
        self.most = most
        self.attempts = 0
        self.answered = 0
        self.killed: dict[str, int] = {}
        """How many processes were killed, by what they were."""
        self._home, self._project, self._pool = home, project, pool
        self._random = random.Random(4)
        self._whole = asyncio.Event()
        """Cleared while there is no gateway."""

    async def start(self) -> None:
        self.program = Program(self._home, self._project, engine="native", workers=2)
        self.gateway: Gateway = await self.program.ready(self._pool, self._home)
        self._whole.set()

    async def use(self) -> None:
        """Create, perhaps call, and delete, again and again, whatever happens."""
        while self.attempts < self.most:
            self.attempts += 1
            if self.attempts % EVERY == 0:
                await self.kill_something()
            await self._whole.wait()
            id = new_id()
            try:
                status, _ = await self.gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo"})
                if status == 200 and self._random.random() < 0.5:
                    self.answered += await self.gateway.call(id, "echo", text=id) == id
                await self.gateway.ask("DELETE", f"/env-instance/{id}")
            except (NetworkError, AssertionError, KeyError, TypeError):
                pass  # of what was killed just now

    async def kill_something(self) -> None:
        if not self._whole.is_set():
            return
        kind = self._random.choice(["instance", "instance", *HELPERS, "gateway"])
        if kind == "gateway":
            self.killed[kind] = self.killed.get(kind, 0) + 1
            self._whole.clear()
            await self.program.end(signal.SIGKILL)
            await self.start()
            return
        victims = await asyncio.to_thread(family, self.program.pid)
        if victims.get(kind):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(victims[kind]), signal.SIGKILL)
                self.killed[kind] = self.killed.get(kind, 0) + 1


class Acknowledged(Chaos):
    """The same, by clients that keep what they were given, and hold the gateway to it."""

    def __init__(self, home: Path, project: Path, pool: Pool, most: int) -> None:
        super().__init__(home, project, pool, most)
        self.failed: dict[str, str] = {}
        """Why instances that were acknowledged do not answer any more, by id."""
        self._kept: list[str] = []

    async def use(self) -> None:
        """Create and call; look at what was created before, in the order of its age, and delete it."""
        while self.attempts < self.most:
            self.attempts += 1
            if self.attempts % EVERY == 0:
                await self.kill_something()
            await self._whole.wait()
            id = new_id()
            with contextlib.suppress(NetworkError):  # of a gateway that was killed just now: it promised nothing
                status, _ = await self.gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo"})
                if status == 200:
                    self._kept.append(id)
            if len(self._kept) > KEPT:
                await self.check(self._kept.pop(0))

    async def check_rest(self) -> None:
        while self._kept:
            await self.check(self._kept.pop())

    async def check(self, id: str) -> None:
        """An instance that was acknowledged answers, or its record says that it failed, and why."""
        async with asyncio.timeout(60):
            while not await self._is_right(id):
                await asyncio.sleep(0.02)  # its gateway, or the instance, was killed just now: no event tells more

    async def _is_right(self, id: str) -> bool:
        await self._whole.wait()
        with contextlib.suppress(NetworkError):
            status, reply = await self.gateway.ask("GET", f"/env-instance/{id}")
            if status == 503:  # a gateway that begins
                return False
            assert status == 200, f"the record of {id} is lost: {reply}"
            data = reply["data"]
            if data["status"] == "Failed":
                assert data["reason"]
                self.failed[id] = data["reason"]
                return True
            assert data["status"] == "Running", data
            try:
                assert await self.gateway.call(id, "echo", text=id) == id
            except AssertionError:
                return False
            self.answered += 1
            with contextlib.suppress(NetworkError):  # then it is ended with what is left
                await self.gateway.ask("DELETE", f"/env-instance/{id}")
            return True
        return False


def assert_all_kinds_were_killed(chaos: Chaos) -> None:
    """Of those that were there to be killed: a few kills need not meet every kind, 50 do."""
    assert chaos.killed
    if chaos.most == ATTEMPTS:
        assert set(chaos.killed) == {"instance", *HELPERS, "gateway"}


def family(gateway: int) -> dict[str, list[int]]:
    """The processes of a gateway's engine, by what they are."""
    own = {child.pid: words(child) for child in children(gateway)}
    makers = [pid for pid, said in own.items() if "aenv.engines.native.maker" in said]
    workers = [pid for pid, said in own.items() if "aenv.control.gateway.forwarding.worker" in said]
    found: dict[str, list[int]] = {"launcher": [], "stager": [], "zygote": [], "instance": []}
    below = [gateway, *makers]
    for pids in found.values():
        below = [child.pid for pid in below for child in children(pid) if child.pid not in (*makers, *workers)]
        pids += below
    return {"maker": makers, "data worker": workers, **found}


def words(process: psutil.Process) -> list[str]:
    """Its command line; empty when it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def logged_to(file: Path) -> list[int]:
    """The processes that print to a file: all of an engine's zygotes have theirs in its home."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.readlink(f"/proc/{process.pid}/fd/1") == str(file):
                found.append(process.pid)
        except OSError:
            continue
    return found


def is_ours(mount: str, home: Path) -> bool:
    return str(home.parent) in mount or " aenv" in mount


def host(home: Path) -> dict[str, Any]:
    return {
        # Others mount too, meanwhile; all that an engine mounts comes from its home, or is called as it is.
        "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if is_ours(line, home)],
        "traces": traces(home),
        "processes": logged_to(home / "run" / "zygotes.log"),
    }


@pytest.mark.parametrize("most", [240, pytest.param(ATTEMPTS, marks=pytest.mark.long)])
async def test_every_acknowledged_instance_answers_or_says_why_not_while_anything_is_killed(
    tmp_path: Path, most: int
) -> None:
    home, project = tmp_path / "home", make_project(tmp_path)
    before = host(home)
    async with Pool() as pool:
        chaos = Acknowledged(home, project, pool, most)
        await chaos.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(chaos.use())
            await chaos.check_rest()
            left = (await chaos.gateway.ask("GET", "/env-instance/*/list?limit=1000"))[1]["data"]
            await asyncio.gather(*(chaos.gateway.ask("DELETE", f"/env-instance/{one['id']}") for one in left))
        finally:
            await chaos.program.end(signal.SIGTERM)
    assert chaos.answered > most / 3
    assert_all_kinds_were_killed(chaos)
    for pid in logged_to(home / "run" / "zygotes.log"):  # those that end at this moment
        psutil.Process(pid).wait(5)
    assert host(home) == before


@pytest.mark.parametrize("most", [480, pytest.param(ATTEMPTS, marks=pytest.mark.long)])
async def test_many_instances_and_random_kills_leave_the_host_as_it_was(tmp_path: Path, most: int) -> None:
    home, project = tmp_path / "home", make_project(tmp_path)
    before = host(home)
    async with Pool() as pool:
        chaos = Chaos(home, project, pool, most)
        await chaos.start()
        await asyncio.gather(*(chaos.use() for _ in range(AT_ONCE)))
        # What lost its gateway in the middle of its creation or its end:
        left = (await chaos.gateway.ask("GET", "/env-instance/*/list?limit=1000"))[1]["data"]
        await asyncio.gather(*(chaos.gateway.ask("DELETE", f"/env-instance/{one['id']}") for one in left))
        await chaos.program.end(signal.SIGTERM)
    assert chaos.answered > most / 10
    assert_all_kinds_were_killed(chaos)
    for pid in logged_to(home / "run" / "zygotes.log"):  # those that end at this moment
        psutil.Process(pid).wait(5)
    assert host(home) == before
