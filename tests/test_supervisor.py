"""The lives of instances: whom they wait for, how they end, and for how long they are remembered."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Conflict, NotFound
from aenv.base.models import CreateInstance
from aenv.base.wire import EnvStatus
from aenv.control.instances.ledger import Ledger, Quotas
from aenv.control.instances.records import Record
from aenv.control.instances.selection import Selection
from aenv.control.instances.sweeper import Sweeper
from aenv.control.serving.accounts import LOCAL
from aenv.control.stores.base import Page
from aenv.engines import proc
from conformance.engine import NEVER_READY, opened
from tests.gateways import (
    ECHO,
    Gateway,
    composed,
    instance_processes,
    leftovers,
    make_project,
    new_id,
    running_gateway,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Opened by an instance of `slow` when its code runs; that instance never becomes ready."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
async def gateway(home: Path, tmp_path: Path, pipe: Path) -> AsyncIterator[Gateway]:
    slow = make_project(tmp_path, "slow", code=NEVER_READY.format(pipe=str(pipe)))
    projects = make_project(tmp_path), make_project(tmp_path, version="1.10.0", ttl="2h"), slow
    async with running_gateway(home, *projects) as gateway:
        yield gateway


# Clients that go away


async def test_a_client_that_leaves_takes_its_creation_along(gateway: Gateway, pipe: Path) -> None:
    id = new_id()
    asking = asyncio.create_task(gateway.create("slow", id=id))
    await opened(pipe)
    (process,) = instance_processes(gateway.home)
    asking.cancel()
    await proc.ended(process.pid)  # nobody else asked for its end
    await gateway.ask("DELETE", f"/env-instance/{id}")  # answered when what is being undone is undone
    assert gateway.leftovers() == []
    status, reply = await gateway.ask("GET", f"/env-instance/{id}")
    assert status == 404
    assert "not found" in reply["message"]


async def test_a_creation_goes_on_while_somebody_waits_for_it(home: Path, tmp_path: Path, pipe: Path) -> None:
    # Opening a pipe waits for its reader: ready as soon as the test wants it.
    go = tmp_path / "go"
    os.mkfifo(go)
    code = ECHO + "".join(f"os.close(os.open({str(path)!r}, os.O_WRONLY))\n" for path in (pipe, go))
    async with running_gateway(home, make_project(tmp_path, code=code)) as gateway:
        id = new_id()
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.address.port)
        body = b'{"envName": "echo@1.0.0"}'
        head = f"PUT /env-instance/{id} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await opened(pipe)
        second = asyncio.create_task(gateway.create(id=id))
        assert (await gateway.ask("GET", f"/env-instance/{id}"))[1]["data"]["status"] == "Creating"
        # Reset, not closed: nobody can take it for a client that still reads.
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await gateway.ask("GET", "/health")
        await opened(go)
        assert (await second)["status"] == "Running"


@pytest.mark.slow
async def test_a_client_whose_connection_broke_can_ask_again(home: Path, tmp_path: Path, pipe: Path) -> None:
    code = f"from pathlib import Path\nif not Path({str(tmp_path / 'again')!r}).exists():\n"
    code += "".join(f"    {line}\n" for line in NEVER_READY.format(pipe=str(pipe)).split("\n"))
    async with running_gateway(home, make_project(tmp_path, code=code + ECHO)) as gateway:
        id = new_id()
        asking = asyncio.create_task(gateway.create(id=id))
        await opened(pipe)
        (tmp_path / "again").touch()
        (process,) = instance_processes(home)
        asking.cancel()
        await proc.ended(process.pid)  # its end has begun: the first attempt is given up
        instance = await gateway.create(id=id)
        assert await gateway.call(instance["id"], "echo", text="again") == "again"


async def test_an_instance_can_be_deleted_while_it_starts(gateway: Gateway, pipe: Path) -> None:
    id = new_id()
    asking = asyncio.create_task(gateway.ask("PUT", f"/env-instance/{id}", {"envName": "slow"}))
    await opened(pipe)
    status, reply = await gateway.ask("POST", "/mcp", {}, [("AEnvCore-EnvInstance-ID", id)], gateway.data)
    assert (status, reply["error"]) == (503, "unavailable")
    assert (await gateway.ask("DELETE", f"/env-instance/{id}"))[0] == 200
    status, reply = await asking
    assert (status, reply["error"]) == (409, "conflict")
    assert gateway.leftovers() == []


# Ending


async def test_delete_answers_when_the_instance_is_gone(gateway: Gateway) -> None:
    instance = await gateway.create()
    status, reply = await gateway.ask("DELETE", f"/env-instance/{instance['id']}")
    assert (status, reply["data"]) == (200, "Deleted successfully")
    assert gateway.leftovers() == []
    assert (await gateway.ask("DELETE", f"/env-instance/{instance['id']}"))[0] == 200
    shown = (await gateway.ask("GET", f"/env-instance/{instance['id']}"))[1]["data"]
    assert (shown["status"], shown["reason"]) == ("Terminated", "deleted")
    assert (shown["token"], shown["mcp_url"], shown["tools"]) == (None, None, None)


async def test_an_instance_ends_when_its_time_to_live_is_over(gateway: Gateway) -> None:
    instance = await gateway.create(ttl="300ms")
    # A call that never returns by itself: it breaks off when the instance ends.
    status, reply = await gateway.ask("POST", f"/instances/{instance['id']}/tools/hang", {}, origin=gateway.data)
    assert (status, reply["error"]) == (502, "tool_server")
    await gateway.ask("DELETE", f"/env-instance/{instance['id']}")  # answered when its end is complete
    shown = (await gateway.ask("GET", f"/env-instance/{instance['id']}"))[1]["data"]
    assert (shown["status"], shown["reason"]) == ("Terminated", "its time to live of 0.3 s was over")
    assert gateway.leftovers() == []


async def test_the_environments_own_ttl_counts_unless_the_request_has_one(gateway: Gateway) -> None:
    assert (await gateway.create("echo@1.0.0"))["ttl"] == "30m"
    assert (await gateway.create("echo@1.10.0"))["ttl"] == "2h"
    assert (await gateway.create("echo@1.10.0", ttl="90s"))["ttl"] == "1m30s"


async def test_a_renewed_instance_lives_from_then_on(home: Path, tmp_path: Path) -> None:
    now = 1000.0
    async with composed(home, make_project(tmp_path), clock=lambda: now) as made:
        record = await made.creator.create(CreateInstance(env_name="echo", ttl="10m"), LOCAL)
        now += 500
        renewed = await made.instances.renew(record.id, 600)
        assert renewed.expires_at > record.expires_at
        now += 598  # the first deadline is long over
        made.supervisor.check(record.id)
        assert (await made.instances.get(record.id)).status == "Running"
        now += 3
        instance = made.supervisor[record.id]
        made.supervisor.check(record.id)
        await instance.ended.wait()
        ended = await made.instances.get(record.id)
        assert (ended.status, ended.reason) == ("Terminated", "its time to live of 600 s was over")
        with pytest.raises(Conflict, match="terminated; only one that runs can be renewed"):
            await made.instances.renew(record.id, 600)


@pytest.mark.slow
async def test_an_instance_that_is_not_used_ends_after_its_idle_timeout(home: Path, tmp_path: Path) -> None:
    now = 1000.0
    async with composed(home, make_project(tmp_path, idleTimeout="5m"), clock=lambda: now) as made:
        used = await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
        unused = await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
        patient = await made.creator.create(CreateInstance(env_name="echo", idle_timeout="20m"), LOCAL)
        now += 200
        await made.instances.address(used.id)  # as every call does
        now += 101
        instance = made.supervisor[unused.id]
        for record in (used, unused, patient):
            made.supervisor.check(record.id)
        await instance.ended.wait()
        ended = await made.instances.get(unused.id)
        assert (ended.status, ended.reason) == ("Terminated", "it was not used for 300 s")
        assert set(made.supervisor) == {used.id, patient.id}


async def test_the_route_to_renew_checks_what_it_is_given(gateway: Gateway) -> None:
    instance = await gateway.create()
    route = f"/env-instance/{instance['id']}/ttl"
    status, reply = await gateway.ask("PUT", route, {"ttl": "2h"})
    assert (status, reply["data"]["ttl"]) == (200, "2h")
    assert reply["data"]["expires_at"] > instance["expires_at"]
    for body in ({}, {"ttl": "soon"}, {"ttl": 5}, {"ttl": "0s"}, [], b"{"):
        assert (await gateway.ask("PUT", route, body))[0] == 400
    assert (await gateway.ask("PUT", "/env-instance/none/ttl", {"ttl": "1h"}))[0] == 404


async def test_an_instance_that_crashes_is_shown_as_failed(gateway: Gateway) -> None:
    instance = await gateway.create()
    (process,) = instance_processes(gateway.home)
    status, _ = await gateway.ask("POST", f"/instances/{instance['id']}/tools/die", {}, origin=gateway.data)
    assert status == 502
    await proc.ended(process.pid)
    other = await gateway.create()
    shown = (await gateway.ask("GET", f"/env-instance/{instance['id']}"))[1]["data"]
    assert (shown["status"], shown["reason"]) == ("Failed", "its process was killed by signal 9")
    assert (await gateway.ask("GET", f"/env-instance/{other['id']}"))[1]["data"]["status"] == "Running"


async def test_ended_instances_are_remembered_for_an_hour(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with composed(home, make_project(tmp_path)) as made:
        record = await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
        await made.instances.delete(record.id)
        assert leftovers(home) == []
        ended = time.time()
        monkeypatch.setattr(time, "time", lambda: ended + 3590)  # the clock on the wall, an hour later
        await made.upkeep.tend()
        assert (await made.instances.get(record.id)).status == "Terminated"
        monkeypatch.setattr(time, "time", lambda: ended + 3610)
        await made.upkeep.tend()
        with pytest.raises(NotFound, match="not found"):
            await made.instances.get(record.id)


async def test_the_sweeper_wakes_for_the_next_deadline_even_when_it_is_added_last() -> None:
    sweeper = Sweeper()
    checked: asyncio.Queue[str] = asyncio.Queue()
    sweeping = asyncio.create_task(sweeper.run(checked.put_nowait))
    sweeper.add(sweeper.now() + 3600, "later")
    await asyncio.sleep(0)
    sweeper.add(sweeper.now() + 0.02, "second")
    sweeper.add(sweeper.now() + 0.01, "first")
    assert [await checked.get(), await checked.get()] == ["first", "second"]
    sweeping.cancel()
    await asyncio.wait({sweeping})


async def test_deadlines_of_what_has_ended_or_was_renewed_take_no_memory() -> None:
    sweeper = Sweeper()
    for number in range(2000):
        sweeper.add(sweeper.now() + 366 * 86400, f"ended-{number}")
        sweeper.forget(f"ended-{number}")
        sweeper.add(sweeper.now() + 3600 + number, "renewed")
    assert len(sweeper) < 200


async def test_an_instance_that_has_ended_leaves_no_deadline_behind(home: Path, tmp_path: Path) -> None:
    async with composed(home, make_project(tmp_path)) as made:
        ids = []
        for _ in range(3):
            ids.append((await made.creator.create(CreateInstance(env_name="echo", ttl="300d"), LOCAL)).id)
            await made.instances.delete(ids[-1])
        assert not any(id in made.sweeper for id in ids)


async def test_records_are_forgotten_as_fast_as_instances_end(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with composed(home, make_project(tmp_path)) as made:
        ledger = Ledger(made.shared.store, Quotas())
        records = [Record(new_id(), made.home.node, "", "", key=str(number)) for number in range(1000)]
        await ledger.begin(*records, limits={})
        for record in records:
            record.become(EnvStatus.TERMINATED, "deleted")
            await ledger.save(record)
        ended = time.time()
        monkeypatch.setattr(time, "time", lambda: ended + 3610)
        await made.upkeep.tend()
        assert [await ledger.find(record.id) for record in records] == [None] * 1000
        assert await ledger.find_key(None, "7") is None


async def test_a_list_by_status_reads_nothing_else(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with composed(home, make_project(tmp_path)) as made:
        store = made.shared.store
        ledger = Ledger(store, Quotas())
        records = [Record(new_id(), made.home.node, "", "", owner="a") for _ in range(300)]
        await ledger.begin(*records, limits={})
        for number, record in enumerate(records):
            record.become(EnvStatus.TERMINATED if number else EnvStatus.FAILED)
            await ledger.save(record)
        read, page, here = 0, store.page, asyncio.current_task()

        async def counted(*arguments: Any, **options: Any) -> Page:
            nonlocal read
            found = await page(*arguments, **options)
            if asyncio.current_task() is here:  # the gateway's own rounds read, too
                read += len(found.documents)
            return found

        monkeypatch.setattr(store, "page", counted)  # the real one answers; this counts
        for owner in (None, "a"):
            found = await made.instances.list(Selection(status=EnvStatus.FAILED, owner=owner))
            assert [record.id for record in found] == [records[0].id]
        assert read == 2
