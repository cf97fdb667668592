"""kill -9 of a gateway with many instances: none is lost, none leaks, and every record tells the truth."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from aenv.base.http1 import Pool
from aenv.engines import proc
from tests.gateways import Gateway, instance_processes, leftovers, make_project, new_id, running_gateway
from tests.test_gateway_process import Program

TELLS_THAT_IT_LOADS = """
import os, time
with open({pipe!r}, "wb", 0) as pipe:
    pipe.write(b".")
time.sleep(3600)
"""
LASTING = 150
SHORT = 40
HALF_MADE = 10

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # two hundred processes on two cores


async def test_none_of_two_hundred_instances_is_lost_or_leaks_when_the_gateway_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slow = make_project(tmp_path, "slow", code=TELLS_THAT_IT_LOADS.format(pipe=str(pipe)))
    projects = make_project(tmp_path), slow
    program = Program(home, *projects)
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        lasting = await create(gateway, LASTING, ttl="1h")
        short = await create(gateway, SHORT, ttl="1h")
        half_made = [new_id() for _ in range(HALF_MADE)]
        asking = [asyncio.create_task(gateway.create("slow", id=id)) for id in half_made]
        with open(pipe, "r+b", 0) as told:  # for writing as well: it has no end before all have written
            for _ in half_made:  # by bytes: two that open a pipe at once are not told from one
                await asyncio.to_thread(told.read, 1)
        crashed = lasting.pop()
        # Nothing tells this gateway any more: these things happen while it is being killed.
        over = [f"/env-instance/{one['id']}/ttl" for one in short[: SHORT // 2]]
        await asyncio.gather(*(gateway.ask("PUT", target, {"ttl": "1ms"}) for target in over))
        await program.end(signal.SIGKILL)
        await asyncio.gather(*asking, return_exceptions=True)
    victim = next(p for p in instance_processes(home) if p.environ()["AENV_INSTANCE_ID"] == crashed["id"])
    victim.kill()
    await proc.ended(victim.pid)

    async with running_gateway(home, *projects) as gateway:
        answers = await asyncio.gather(*(gateway.call(one["id"], "echo", text=one["id"]) for one in lasting))
        assert answers == [one["id"] for one in lasting]
        status = {}
        for one in [*lasting, *short, crashed]:
            status[one["id"]] = (await gateway.ask("GET", f"/env-instance/{one['id']}"))[1]["data"]
        assert {status[one["id"]]["status"] for one in lasting} == {"Running"}
        assert status[crashed["id"]]["status"] == "Failed"
        assert "while no gateway looked after it" in status[crashed["id"]]["reason"]
        for one in short[: SHORT // 2]:
            await gateway.ask("DELETE", f"/env-instance/{one['id']}")  # answered when its end is complete
            shown = (await gateway.ask("GET", f"/env-instance/{one['id']}"))[1]["data"]
            assert "time to live" in shown["reason"], shown
        for id in half_made:
            shown = (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"]
            assert (shown["status"], shown["reason"]) == ("Failed", "the gateway ended while it was starting")
        listed = (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"]
        expected = {one["id"] for one in [*lasting, *short[SHORT // 2 :]]}
        assert {one["id"] for one in listed} == expected
        living = {process.environ()["AENV_INSTANCE_ID"] for process in instance_processes(home)}
        assert living == expected
        await asyncio.gather(*(gateway.ask("DELETE", f"/env-instance/{id}") for id in expected))
        assert leftovers(home) == []


async def create(gateway: Gateway, count: int, **body: Any) -> list[dict[str, Any]]:
    status, reply = await gateway.ask("POST", "/env-instances", {"envName": "echo", "count": count, **body})
    assert status == 200, reply
    data: list[dict[str, Any]] = reply["data"]
    return data
