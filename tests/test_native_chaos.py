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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # two thousand instances on two cores


class Chaos:
    """A gateway that is killed and started again, and those that use it meanwhile."""

    def __init__(self, home: Path, project: Path, pool: Pool) -> None:
        self.attempts = 0
        self.answered = 0
        self.killed: dict[str, int] = {}
        self._home, self._project, self._pool = home, project, pool
        self._random = random.Random(4)
        self._whole = asyncio.Event()
        """Cleared while there is no gateway."""

    async def start(self) -> None:
        self.program = Program(self._home, self._project, engine="native")
        self.gateway: Gateway = await self.program.ready(self._pool, self._home)
        self._whole.set()

    async def use(self) -> None:
        """Create, perhaps call, and delete, again and again, whatever happens."""
        while self.attempts < ATTEMPTS:
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
        kind = self._random.choice(["instance", "instance", "zygote", "reaper", "launcher", "gateway"])
        self.killed[kind] = self.killed.get(kind, 0) + 1
        if kind == "gateway":
            self._whole.clear()
            await self.program.end(signal.SIGKILL)
            await self.start()
            return
        victims = await asyncio.to_thread(family, self.program.pid)
        if victims.get(kind):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(victims[kind]), signal.SIGKILL)


def family(gateway: int) -> dict[str, list[int]]:
    """The processes of a gateway's engine, by what they are."""
    found: dict[str, list[int]] = {"launcher": [], "reaper": [], "zygote": [], "instance": []}
    below = [gateway]
    for pids in found.values():
        below = [child.pid for pid in below for child in children(pid)]
        pids += below
    return found


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


async def test_two_thousand_instances_and_random_kills_leave_the_host_as_it_was(tmp_path: Path) -> None:
    home, project = tmp_path / "home", make_project(tmp_path)
    before = host(home)
    async with Pool() as pool:
        chaos = Chaos(home, project, pool)
        await chaos.start()
        await asyncio.gather(*(chaos.use() for _ in range(AT_ONCE)))
        # What lost its gateway in the middle of its creation or its end:
        left = (await chaos.gateway.ask("GET", "/env-instance/*/list?limit=1000"))[1]["data"]
        await asyncio.gather(*(chaos.gateway.ask("DELETE", f"/env-instance/{one['id']}") for one in left))
        await chaos.program.end(signal.SIGTERM)
    assert chaos.answered > ATTEMPTS / 10
    assert set(chaos.killed) == {"instance", "zygote", "reaper", "launcher", "gateway"}
    for pid in logged_to(home / "run" / "zygotes.log"):  # those that end at this moment
        psutil.Process(pid).wait(5)
    assert host(home) == before
