"""The first process of an instance collects what the programs leave behind that the environment has started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aenv.isolation.sandbox import probe
from tests.gateways import make_project, running_gateway

CODE = """
    import asyncio
    import os
    import subprocess

    from aenv import register_tool

    kept = []


    def zombies() -> list[int]:
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                state = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state == "Z":
                found.append(int(name))
        return found


    @register_tool
    def leave(count: int) -> int:
        # Each shell ends at once, and what it has started goes on as nobody's.
        for _ in range(count):
            subprocess.run(["sh", "-c", "sleep 0.05 & exit 0"], check=True)
        return os.getpid()


    @register_tool
    async def start_by_the_loop() -> int:
        process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.05 & exit 4")
        return await process.wait()


    @register_tool
    def keep() -> int:
        kept.append(subprocess.Popen(["sh", "-c", "exit 7"]))
        return kept[0].pid


    @register_tool
    def left() -> list[int]:
        return zombies()


    @register_tool
    def ask() -> int:
        return kept[0].wait()
"""


@pytest.mark.slow  # zombies are given a second, twice
@pytest.mark.timeout(60)
async def test_orphans_are_collected_and_children_of_the_environment_are_not(tmp_path: Path) -> None:
    if probe.missing_isolation():
        pytest.skip("this host cannot isolate instances")
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=CODE), engine="native") as gateway:
        id = (await gateway.create())["id"]
        own = (await gateway.call(id, "keep"))["result"]

        async def until_only_ours() -> None:
            async with asyncio.timeout(20):
                while (await gateway.call(id, "left"))["result"] != [own]:
                    await asyncio.sleep(0.1)

        assert (await gateway.call(id, "leave", count=5))["result"] == 1  # the runtime is the first process
        await until_only_ours()
        # From here on the signal of a death is uvloop's own.
        assert (await gateway.call(id, "start_by_the_loop"))["result"] == 4
        await gateway.call(id, "leave", count=5)
        await until_only_ours()
        assert (await gateway.call(id, "ask"))["result"] == 7
