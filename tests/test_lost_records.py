"""Records that the store has lost, and creates that a crash has cut off."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from aenv.base.errors import NetworkError
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.serving.accounts import LOCAL
from aenv.control.stores.base import Delete
from conformance.engine import NEVER_READY, opened
from tests.gateways import ECHO, composed, instance_processes, leftovers, make_project, new_id, running_gateway
from tests.test_gateway_process import Program

pytestmark = pytest.mark.slow  # gateways are started again

ASKED = CreateInstance(env_name="echo")


async def test_an_instance_whose_record_the_store_lost_is_renewed_and_recorded_again(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made:
        id = (await made.creator.create(ASKED, LOCAL, key="once")).id
        store = made.shared.store
        await store.write(Delete("instances", id))
        assert await store.totals("instances") == [0]
        async with asyncio.timeout(5):  # it used to try for ever
            assert (await made.instances.renew(id, 7200)).ttl == 7200
        assert await store.totals("instances") == [1]
        assert (await made.creator.create(ASKED, LOCAL, key="once")).id == id
        await made.instances.delete(id)
        assert await store.totals("instances") == [0]
        assert (await made.instances.get(id)).reason == "deleted"


async def test_upkeep_records_again_what_runs_and_is_not_in_the_store(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with composed(home, make_project(tmp_path)) as made:
        id = (await made.creator.create(ASKED, LOCAL)).id
        store = made.shared.store
        await store.write(Delete("instances", id))
        await made.upkeep.tend()
        assert await store.totals("instances") == [1]
        assert (await store.get("instances", id))[0] is not None
        assert len(instance_processes(home)) == 1


async def test_a_key_whose_instance_the_store_lost_can_be_used_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with composed(home, make_project(tmp_path)) as made:
        first = await made.creator.create(ASKED, LOCAL, key="once")
        await made.instances.delete(first.id)
        await made.shared.store.write(Delete("instances", first.id))
        async with asyncio.timeout(5):
            assert (await made.creator.create(ASKED, LOCAL, key="once")).id != first.id


@pytest.mark.parametrize("by_key", [False, True])
async def test_a_create_that_a_crash_cut_off_begins_again_with_the_same_id_or_key(
    tmp_path: Path, by_key: bool
) -> None:
    home, pipe, id = tmp_path / "home", tmp_path / "pipe", new_id()
    os.mkfifo(pipe)
    project = make_project(tmp_path, code=NEVER_READY.format(pipe=str(pipe)))
    asked = ("POST", "/env-instance") if by_key else ("PUT", f"/env-instance/{id}")
    headers = [("idempotency-key", "once")] if by_key else []
    program = Program(home, project)
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        asking = asyncio.create_task(gateway.ask(*asked, {"envName": "echo"}, headers))
        await opened(pipe)
        await program.end(signal.SIGKILL)
        with pytest.raises(NetworkError):
            await asking
    (project / "src" / "environment.py").write_text(ECHO)
    async with running_gateway(home, project) as gateway:
        if not by_key:
            shown = (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"]
            assert (shown["status"], shown["reason"]) == ("Failed", "the gateway ended while it was starting")
        replies = [await gateway.ask(*asked, {"envName": "echo"}, headers) for _ in range(2)]
        assert [status for status, _ in replies] == [200, 200], replies
        assert len({reply["data"]["id"] for _, reply in replies}) == 1
    assert leftovers(home) == []
