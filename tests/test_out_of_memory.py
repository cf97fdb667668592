"""An instance that runs out of memory says so in the call that did it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aenv.isolation.sandbox import probe
from tests.gateways import make_project, running_gateway

CODE = """
    import os

    from aenv import register_tool


    @register_tool
    def fill(megabytes: int) -> int:
        return len(bytes(range(256)) * (megabytes << 12))


    @register_tool
    def leave() -> str:
        os._exit(3)
"""


@pytest.mark.slow  # an isolated instance is filled
@pytest.mark.timeout(60)
async def test_the_call_that_runs_out_of_memory_says_so(tmp_path: Path) -> None:
    if probe.missing_isolation():
        pytest.skip("this host cannot isolate instances")
    project = make_project(tmp_path, code=CODE, memory="128Mi")
    async with running_gateway(tmp_path / "home", project, engine="native") as gateway:
        made = await gateway.create()
        if any(line.startswith("memory") for line in made["not_enforced"]):
            pytest.skip("this host cannot limit memory")
        id = made["id"]
        assert await gateway.call(id, "fill", megabytes=1) == {"result": 1 << 20}
        status, reply = await gateway.ask(
            "POST", f"/instances/{id}/tools/fill", {"megabytes": 1024}, origin=gateway.data
        )
        assert (status, reply["message"]) == (
            502,
            f"instance {id!r} ended before it had answered: it used more memory than its limit",
        )


async def test_the_call_in_which_an_instance_ends_says_how(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=CODE)) as gateway:
        id = (await gateway.create())["id"]
        status, reply = await gateway.ask("POST", f"/instances/{id}/tools/leave", {}, origin=gateway.data)
        assert status == 502
        assert reply["message"].startswith(f"instance {id!r} ended before it had answered: ")
        assert "3" in reply["message"].rpartition(":")[2]
