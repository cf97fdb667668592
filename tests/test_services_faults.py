"""Services when things go wrong: replicas die, hang and fall ill; gateways are killed; the store is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import Origin
from aenv.base.errors import ConnectFailed, NetworkError
from aenv.base.http1 import Pool
from aenv.control.services.replica import Delays, Pace, judge
from aenv.control.services.service_records import ServiceRecords
from aenv.engines import proc
from conformance.engine import opened
from tests.service_gateway import (
    BROKEN,
    CODE,
    QUICK,
    ServiceGateway,
    ask,
    leftovers,
    make_project,
    replica_processes,
    service_gateway,
)

pytestmark = pytest.mark.slow  # gateways are killed and started again


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def projects(tmp_path: Path) -> list[Path]:
    return [make_project(tmp_path), make_project(tmp_path, "1.1.0"), make_project(tmp_path, "0.1.0", BROKEN)]


@pytest.fixture
def ill(tmp_path: Path) -> Path:
    """A replica is ill while a file here has the name of its process."""
    folder = tmp_path / "ill"
    folder.mkdir()
    return folder


# Replicas


async def test_a_killed_replica_is_started_again_while_the_others_serve(home: Path, projects: list[Path]) -> None:
    async with service_gateway(home, *projects) as gateway:
        id = (await gateway.create(replicas=2))["id"]
        before = await gateway.until(id, available=2)
        victim, other = await gateway.pids(id)
        os.kill(victim, signal.SIGKILL)
        await proc.ended(victim)
        await gateway.until(id, "Updating", available=1)
        again = asyncio.create_task(gateway.until(id, available=2))
        while not again.done():
            assert (await gateway.call(id, "who"))["pid"] != victim
        assert (await again).instances == before.instances
        assert other in await gateway.pids(id)
        assert len(replica_processes(home)) == 2


async def test_a_request_that_a_dead_replica_cannot_take_goes_to_another(home: Path, projects: list[Path]) -> None:
    # So patient that it never finds out by itself.
    pace = replace(QUICK, check_every=3600, first_delay=3600, longest_delay=3600)
    async with service_gateway(home, *projects, pace=pace) as gateway:
        id = (await gateway.create(replicas=2))["id"]
        await gateway.until(id, available=2)
        victim, other = await gateway.pids(id)
        os.kill(victim, signal.SIGKILL)
        await proc.ended(victim)
        # Before the gateway's loop has had a turn to notice the end:
        assert {(await gateway.call(id, "who"))["pid"] for _ in range(4)} == {other}


async def test_an_ill_replica_gets_no_requests_until_it_is_well(
    home: Path, projects: list[Path], ill: Path
) -> None:
    async with service_gateway(home, *projects, pace=replace(QUICK, recheck_after=1.0)) as gateway:
        id = (await gateway.create(replicas=2, environment_variables={"ILL": str(ill)}))["id"]
        await gateway.until(id, available=2)
        patient, other = pids = sorted(await gateway.pids(id))
        (ill / str(patient)).touch()
        record = await gateway.until(id, "Updating", available=1)
        assert record.reason == "not healthy: /health says 'error'"
        assert await gateway.pids(id) == {other}
        (ill / str(patient)).unlink()
        await gateway.until(id, available=2)
        assert sorted(await gateway.pids(id)) == pids


async def test_a_replica_that_stays_ill_is_replaced(home: Path, projects: list[Path], ill: Path) -> None:
    async with service_gateway(home, *projects) as gateway:
        id = (await gateway.create(environment_variables={"ILL": str(ill)}))["id"]
        (patient,) = await gateway.pids(id)
        (ill / str(patient)).touch()
        await proc.ended(patient)
        await gateway.until(id, available=1)
        assert patient not in await gateway.pids(id)
        assert len(replica_processes(home)) == 1


async def test_what_is_replaced_is_gone_however_long_the_next_start_is_put_off(
    home: Path, projects: list[Path], ill: Path
) -> None:
    async with service_gateway(home, *projects, pace=replace(QUICK, first_delay=3600)) as gateway:
        id = (await gateway.create(environment_variables={"ILL": str(ill)}))["id"]
        (patient,) = await gateway.pids(id)
        (ill / str(patient)).touch()
        await proc.ended(patient)


async def test_a_replica_that_hangs_holds_up_nobody(home: Path, projects: list[Path]) -> None:
    async with service_gateway(home, *projects) as gateway:
        id = (await gateway.create(replicas=2))["id"]
        await gateway.until(id, available=2)
        stuck, other = await gateway.pids(id)
        os.kill(stuck, signal.SIGSTOP)
        try:
            record = await gateway.until(id, "Updating", available=1)
            assert record.reason == "not healthy: /health did not answer within 0.5 s"
            assert await gateway.pids(id) == {other}
        finally:
            os.kill(stuck, signal.SIGCONT)
        await gateway.until(id, available=2)


async def test_a_replica_that_is_never_healthy_is_given_the_time_of_a_start(home: Path, tmp_path: Path) -> None:
    code = CODE.replace('"error" if ill else "healthy"', '"error"')
    async with service_gateway(home, make_project(tmp_path, code=code), start_timeout=2.0) as gateway:
        id = (await gateway.create(ready=False))["id"]
        record = await gateway.until(id, "Failed")
        assert record.reason == "not healthy: /health says 'error'"


async def test_what_cannot_start_is_tried_again_and_says_why(home: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import os\nos.close(os.open({str(pipe)!r}, os.O_WRONLY))\n{BROKEN}"
    async with service_gateway(home, make_project(tmp_path, code=code)) as gateway:
        id = (await gateway.create(ready=False))["id"]
        for _ in range(3):
            await opened(pipe)
        record = await gateway.until(id, "Failed")
        assert "this version is broken" in (record.reason or "")
        _, reply = await gateway.ask("GET", f"/env-service/{id}")
        assert (reply["data"]["status"], reply["data"]["available_replicas"]) == ("Failed", 0)
        assert "this version is broken" in reply["data"]["reason"]


def test_starts_are_further_and_further_apart_until_one_lasts() -> None:
    delays = Delays(Pace())
    assert [delays.after(1.0) for _ in range(5)] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert [delays.after(59.9) for _ in range(6)][-2:] == [30.0, 30.0]
    assert [delays.after(60.0), delays.after(0.0)] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b'{"success": true, "data": {"status": "success"}}', None),
        (200, b'{"success": true, "data": {"status": "healthy", "notes": 3}}', None),
        (200, b'{"success": true, "data": {"notes": 3}}', None),
        (200, b'{"success": true, "data": null}', None),
        (200, b'{"success": true, "data": {"status": "error"}}', "/health says 'error'"),
        (200, b'{"success": false, "error": "x"}', "/health answered 200"),
        (500, b'{"success": true, "data": {}}', "/health answered 500"),
        (200, b"[]", "/health answered 200"),
        (200, b"<html>", "/health answered 200 with something that is not JSON"),
    ],
)
def test_health_is_what_the_replica_itself_says(status: int, body: bytes, problem: str | None) -> None:
    assert judge(status, body) == problem


# The store


async def test_replicas_are_looked_after_while_the_store_is_away(home: Path, projects: list[Path]) -> None:
    async with service_gateway(home, *projects) as gateway:
        id = (await gateway.create())["id"]
        (victim,) = await gateway.pids(id)
        gateway.store.is_down = True
        assert (await gateway.ask("PUT", f"/env-service/{id}", {"replicas": 2}))[0] == 503
        os.kill(victim, signal.SIGKILL)
        await proc.ended(victim)
        while (status := (await gateway.ask("GET", f"/services/{id}/health"))[0]) == 503:
            pass  # nobody can be told that it is up again, but whoever asks
        assert status == 200
        assert victim not in await gateway.pids(id)
        gateway.store.is_down = False
        assert (await gateway.ask("PUT", f"/env-service/{id}", {"replicas": 2}))[0] == 200
        await gateway.until(id, available=2)


async def test_another_gateway_on_the_store_may_change_and_end_a_service(home: Path, projects: list[Path]) -> None:
    async with service_gateway(home, *projects) as gateway:
        id = (await gateway.create())["id"]
        # What a gateway elsewhere does: it writes, and wakes nobody here.
        elsewhere = ServiceRecords(gateway.store)
        await elsewhere.change(id, lambda record: record.having(replicas=2))
        await gateway.until(id, available=2)
        await elsewhere.change(id, lambda record: record.having(is_deleted=True))
        await gateway.store.until(id, lambda record: record is None)
        assert gateway.leftovers() == []


# Gateways


async def test_a_gateway_that_stops_takes_the_replicas_along_and_the_next_starts_them_again(
    home: Path, projects: list[Path]
) -> None:
    async with service_gateway(home, *projects) as gateway:
        await gateway.create(service_name="steady", environment_variables={"A": "1"})
    assert leftovers(home) == []
    async with service_gateway(home, *projects) as gateway:
        await gateway.until("steady", available=1)
        assert (await gateway.call("steady", "who"))["variables"]["A"] == "1"


class Child:
    """A gateway as a process of its own, which tells what becomes of its services."""

    def __init__(self, process: asyncio.subprocess.Process, pool: Pool) -> None:
        assert process.stdout
        self._process = process
        self._lines = process.stdout
        self._pool = pool
        self._port = 0

    async def ready(self) -> None:
        self._port = int(await self._lines.readline())

    async def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        return await ask(self._pool, Origin("127.0.0.1", self._port), method, target, body)

    async def until(self, status: str, **fields: Any) -> None:
        """Return when a service has become like that. ConnectError when the process has ended before."""
        while line := await self._lines.readline():
            record = json.loads(line)
            if record["status"] == status and all(record[name] == value for name, value in fields.items()):
                return
        raise NetworkError("the gateway has ended")

    async def stop(self) -> None:
        self._process.terminate()
        assert await self._process.wait() == 0

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def child_gateway(home: Path, *projects: Path, moment: int = 0) -> AsyncIterator[Child]:
    """Killed at the end, if not before."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.service_gateway", str(home), str(moment), *map(str, projects)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    async with Pool() as pool:
        child = Child(process, pool)
        try:
            await child.ready()
            yield child
        finally:
            await child.kill()


@pytest.mark.parametrize("is_killed", [True, False])
async def test_the_next_gateway_goes_on_with_the_replicas_that_run(
    home: Path, projects: list[Path], is_killed: bool
) -> None:
    async with child_gateway(home, *projects) as child:
        await child.ask("POST", "/env-service", {"envName": "notes", "service_name": "s", "replicas": 3})
        await child.until("Running", available=3)
        if not is_killed:
            await child.stop()
    pids = [process.pid for process in replica_processes(home)]
    os.kill(pids[0], signal.SIGKILL)
    async with service_gateway(home, *projects) as gateway:
        await gateway.until("s", available=3)
        assert set(pids[1:]) < await gateway.pids("s")
        assert len(replica_processes(home)) == 3
        os.kill(pids[1], signal.SIGKILL)  # no child of this gateway, and noticed all the same
        await gateway.until("s", "Updating", available=2)
        await gateway.until("s", available=3)


async def test_a_replica_that_was_starting_when_its_gateway_was_killed_is_started_anew(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe, go = tmp_path / "pipe", tmp_path / "go"
    os.mkfifo(pipe)
    wait = f"""
import os, signal
if not os.path.exists({str(go)!r}):
    os.close(os.open({str(pipe)!r}, os.O_WRONLY))
    signal.pause()
"""
    project = make_project(tmp_path, code=wait + CODE)
    async with child_gateway(home, project) as child:
        await child.ask("POST", "/env-service", {"envName": "notes", "service_name": "s"})
        await opened(pipe)
    (half,) = replica_processes(home)
    go.touch()
    caplog.set_level("INFO", "aenv.control.services.service_supervisor")
    async with service_gateway(home, project) as gateway:
        await gateway.until("s", available=1)
        (pid,) = await gateway.pids("s")
        assert pid != half.pid
        assert [process.pid for process in replica_processes(home)] == [pid]
    assert "replica down" not in caplog.text


async def _story(child: Child) -> None:
    """Everything that can happen to a service, as far as the gateway lives."""
    await child.ask("POST", "/env-service", {"envName": "notes@1.0.0", "service_name": "s", "replicas": 2})
    await child.until("Running", available=2)
    await child.ask("PUT", "/env-service/s", {"version": "1.1.0"})
    await child.until("Running", good=2)
    await child.ask("PUT", "/env-service/s", {"replicas": 1})
    await child.until("Running", replicas=1)
    await child.ask("DELETE", "/env-service/s")
    await child.until("Gone")


@pytest.mark.parametrize("moment", range(1, 31))
async def test_killed_at_any_moment_nothing_is_lost_and_nothing_leaks(
    home: Path, projects: list[Path], moment: int
) -> None:
    with contextlib.suppress(NetworkError, ConnectFailed):
        async with child_gateway(home, *projects, moment=moment) as child:
            await _story(child)
    async with service_gateway(home, *projects) as gateway:
        record = await ServiceRecords(gateway.store).find("s")
        if record is None or record.is_deleted:
            await gateway.store.until("s", lambda record: record is None)
            assert gateway.leftovers() == []
            return
        await gateway.until("s", available=record.replicas)
        await gateway.store.until(
            "s", lambda now: bool(now and len(now.instances) == now.available == now.replicas)
        )
        await _settled(gateway)


async def _settled(gateway: ServiceGateway) -> None:
    record = await ServiceRecords(gateway.store).find("s")
    assert record
    assert record.available == record.replicas
    processes = {process.environ()["AENV_INSTANCE_ID"] for process in replica_processes(gateway.home)}
    assert processes == set(record.instances)
    assert {path.name for path in (gateway.home / "run" / "instances").glob("*")} == set(record.instances)
    assert (await gateway.call("s", "who"))["version"] == record.setup.environment.partition("@")[2]
    assert await gateway.store.totals("instances") == [record.replicas]
