"""Services: made, changed and ended through their routes, and used through their URL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aenv.base.addresses import parse_url
from aenv.base.errors import NotFound
from aenv.base.models import CreateService
from aenv.control.services.replicas import plan
from aenv.control.services.service_records import ServiceRecords
from aenv.control.serving.accounts import LOCAL
from conformance.engine import opened
from tests.gateways import make_project as make_echo
from tests.gateways import running_gateway
from tests.service_gateway import (
    BROKEN,
    ServiceGateway,
    call,
    make_project,
    open_for_both,
    pipes,
    replica_processes,
    service_gateway,
)

pytestmark = pytest.mark.slow  # services start


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def gateway(home: Path, tmp_path: Path) -> AsyncIterator[ServiceGateway]:
    projects = [
        make_project(tmp_path, "1.0.0", environmentVariables={"FROM": "config.json", "BOTH": "config.json"}),
        make_project(tmp_path, "1.1.0"),
        make_project(tmp_path, "2.0.0-broken", BROKEN),
        make_project(tmp_path, name="other"),
    ]
    async with service_gateway(home, *projects) as gateway:
        yield gateway


# Making one


async def test_a_service_is_answered_for_at_once_and_then_comes_up(gateway: ServiceGateway) -> None:
    made = await gateway.create(ready=False, envName="notes@1.0.0", service_name="my-notes", replicas=2)
    assert made["id"] == "my-notes"
    assert (made["status"], made["replicas"], made["available_replicas"]) == ("Creating", 2, 0)
    assert made["service_url"] == f"http://127.0.0.1:{gateway.origin.port}/services/my-notes"
    assert (made["env"]["name"], made["env"]["version"]) == ("notes", "1.0.0")
    await gateway.until("my-notes", available=2)
    _, reply = await gateway.ask("GET", "/env-service/my-notes/")
    assert (reply["data"]["status"], reply["data"]["available_replicas"]) == ("Running", 2)
    origin, path = parse_url(reply["data"]["service_url"])
    assert (await call(gateway.pool, origin, path.removeprefix("/services/"), "who"))["version"] == "1.0.0"


async def test_what_has_no_healthy_replica_yet_is_unavailable_and_what_is_not_there_not_found(
    gateway: ServiceGateway,
) -> None:
    made = await gateway.create(ready=False)
    status, reply = await gateway.ask("GET", f"/services/{made['id']}/health")
    assert (status, reply["error"]) == (503, "unavailable")
    assert (await gateway.ask("GET", "/services/nobody/health"))[0] == 404
    for method in ("GET", "PUT", "DELETE"):
        status, reply = await gateway.ask(method, "/env-service/nobody", {} if method == "PUT" else None)
        assert (status, reply["message"]) == (404, "service 'nobody' not found (404)")


async def test_variables_of_the_service_win_and_no_reply_shows_a_value(gateway: ServiceGateway) -> None:
    variables = {"BOTH": "secret-1", "OWN": "secret-2", "AENV_SERVICE_ID": "forged"}
    made = await gateway.create(envName="notes@1.0.0", environment_variables=variables)
    seen = (await gateway.call(made["id"], "who"))["variables"]
    assert (seen["FROM"], seen["BOTH"], seen["OWN"]) == ("config.json", "secret-1", "secret-2")
    assert seen["AENV_SERVICE_ID"] == made["id"]
    for target in (f"/env-service/{made['id']}", "/env-service/*/list"):
        _, reply = await gateway.ask("GET", target)
        assert "secret" not in str(reply)
        assert '"OWN": "***"' in str(reply).replace("'", '"')


async def test_a_service_without_a_name_gets_one_that_is_a_host_name(gateway: ServiceGateway) -> None:
    made = await gateway.create(ready=False)
    assert re.fullmatch(r"notes-svc-[a-z0-9]{6}", made["id"])
    assert made["replicas"] == 1


async def test_a_name_is_given_once(gateway: ServiceGateway) -> None:
    body = {"envName": "notes", "service_name": "once"}
    replies = await asyncio.gather(*(gateway.ask("POST", "/env-service", body) for _ in range(4)))
    assert sorted(status for status, _ in replies) == [200, 409, 409, 409]
    assert (await gateway.ask("DELETE", "/env-service/once"))[0] == 200
    assert (await gateway.ask("POST", "/env-service", body))[0] == 200


async def test_a_client_that_leaves_early_leaves_no_service_that_nobody_looks_after(
    gateway: ServiceGateway,
) -> None:
    for turns in range(6):
        asking = asyncio.create_task(
            gateway.services.create(CreateService(env_name="notes", service_name=f"s{turns}"), LOCAL)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    recorded = await gateway.services.list("*", LOCAL)
    assert recorded
    for record in recorded:
        await gateway.until(record.id)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"service_name": "Notes"}, "service_name"),
        ({"service_name": "../x"}, "service_name"),
        ({"service_name": "a" * 64}, "service_name"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": 101}, "replicas"),
        ({"replicas": "many"}, "replicas"),
        ({"replicas": 2, "storage_size": "1Gi"}, "replicas"),
        ({"pvc_name": "../../etc"}, "pvc_name"),
        ({"pvc_name": ".."}, "pvc_name"),
        ({"storage_size": "big"}, "bad size"),
        ({"cpu_limit": "none"}, "bad cpu"),
        ({"environment_variables": {"a=b": "c"}}, "environment_variables"),
        ({"environment_variables": {"a": "\0"}}, "environment_variables"),
        ({"envName": ""}, "environment name"),
    ],
)
async def test_a_request_that_cannot_be_is_refused_and_the_field_named(
    gateway: ServiceGateway, wrong: dict[str, Any], field: str
) -> None:
    status, reply = await gateway.ask("POST", "/env-service", {"envName": "notes", **wrong})
    assert status == 400
    assert field in reply["message"]
    assert (await gateway.ask("GET", "/env-service/*/list"))[1]["data"] == []


async def test_an_environment_that_is_not_there_makes_no_service(gateway: ServiceGateway) -> None:
    assert (await gateway.ask("POST", "/env-service", {"envName": "notes@9.9"}))[0] == 404
    assert (await gateway.ask("GET", "/env-service/*/list"))[1]["data"] == []


async def test_services_are_listed_by_their_environment(gateway: ServiceGateway) -> None:
    ids = [
        (await gateway.create(ready=False, envName=name))["id"]
        for name in ("notes@1.0.0", "notes@1.1.0", "other@1.0.0")
    ]

    async def listed(which: str) -> list[str]:
        status, reply = await gateway.ask("GET", f"/env-service/{which}")
        assert status == 200
        return [service["id"] for service in reply["data"]]

    assert await listed("*/list") == ids
    assert await listed("notes/list") == ids[:2]
    assert await listed("notes@1.1.0/list") == ids[1:2]
    assert await listed("*/list?envName=other") == ids[2:]
    assert await listed("nothing/list") == []


async def test_the_gateway_has_services_on_both_of_its_ports(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_echo(tmp_path)) as gateway:
        status, reply = await gateway.ask("POST", "/env-service", {"envName": "echo", "service_name": "echo"})
        assert status == 200
        assert reply["data"]["service_url"] == f"http://127.0.0.1:{gateway.address.data_port}/services/echo"
        while reply["data"]["status"] == "Creating":  # as published clients wait
            _, reply = await gateway.ask("GET", "/env-service/echo")
        for origin in (gateway.data, gateway.control):
            _, reply = await gateway.ask("POST", "/services/echo/tools/echo", {"text": "hi"}, origin=origin)
            assert reply["data"]["content"][0]["text"] == "hi"
        assert (await gateway.ask("DELETE", "/env-service/echo"))[0] == 200
        assert gateway.leftovers() == []


# Balancing


async def test_requests_are_spread_over_the_replicas(gateway: ServiceGateway) -> None:
    made = await gateway.create(replicas=2)
    await gateway.until(made["id"], available=2)
    assert len(await gateway.pids(made["id"], calls=2)) == 2


async def test_a_busy_replica_gets_no_request_while_another_has_time(
    gateway: ServiceGateway, tmp_path: Path
) -> None:
    made = await gateway.create(replicas=2)
    await gateway.until(made["id"], available=2)
    pipe, go = pipes(tmp_path)
    busy = asyncio.create_task(gateway.call(made["id"], "begin", pipe=str(pipe), go=str(go)))
    await opened(pipe)
    others = await gateway.pids(made["id"], calls=4)
    assert len(others) == 1
    with open_for_both(go):
        assert (await busy)["pid"] not in others


async def test_a_session_stays_with_its_replica(gateway: ServiceGateway) -> None:
    made = await gateway.create(replicas=2)
    await gateway.until(made["id"], available=2)
    for session in ("one", "two", "three"):
        seen = [(await gateway.call(made["id"], "who", session=session))["pid"] for _ in range(4)]
        assert len(set(seen)) == 1


# Changing one


async def test_replicas_are_added_and_taken_away(gateway: ServiceGateway) -> None:
    id = (await gateway.create())["id"]
    first = await gateway.pids(id)
    status, reply = await gateway.ask("PUT", f"/env-service/{id}", {"replicas": 3})
    assert (status, reply["data"]["replicas"], reply["data"]["status"]) == (200, 3, "Updating")
    await gateway.until(id, available=3)
    grown = await gateway.pids(id)
    assert len(grown) == 3
    assert first < grown
    await gateway.ask("PUT", f"/env-service/{id}", {"replicas": 1})
    await gateway.store.until(id, lambda record: record is not None and len(record.instances) == 1)
    assert len(replica_processes(gateway.home)) == 1
    assert await gateway.pids(id) < grown


@pytest.mark.parametrize(
    "wrong", [{"replicas": 0}, {"replicas": -1}, {"replicas": 1000}, {"image": "img"}, {"image": "other@1.0.0"}]
)
async def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    gateway: ServiceGateway, wrong: dict[str, Any]
) -> None:
    id = (await gateway.create())["id"]
    assert (await gateway.ask("PUT", f"/env-service/{id}", wrong))[0] == 400
    assert (await gateway.ask("PUT", f"/env-service/{id}", {"version": "9.9.9"}))[0] == 404
    record = await ServiceRecords(gateway.store).find(id)
    assert record
    assert (record.generation, record.replicas) == (1, 1)


async def test_a_rolling_update_under_load_loses_no_request(gateway: ServiceGateway) -> None:
    id = (await gateway.create(envName="notes@1.0.0", replicas=2))["id"]
    await gateway.until(id, available=2)
    before = await gateway.pids(id)
    stop = asyncio.Event()
    seen: list[str] = []

    async def load() -> None:
        while not stop.is_set():
            seen.append((await gateway.call(id, "who"))["version"])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(load())
        status, reply = await gateway.ask("PUT", f"/env-service/{id}", {"image": "registry:5000/ns/notes:1.1.0"})
        assert (status, reply["data"]["status"], reply["data"]["env"]["version"]) == (200, "Updating", "1.1.0")
        await gateway.store.until(
            id, lambda record: bool(record and record.status == "Running" and len(record.instances) == 2)
        )
        stop.set()
    assert set(seen) == {"1.0.0", "1.1.0"}
    assert not before & await gateway.pids(id)
    assert len(replica_processes(gateway.home)) == 2


async def test_what_is_under_way_in_an_old_replica_is_finished(gateway: ServiceGateway, tmp_path: Path) -> None:
    id = (await gateway.create(envName="notes@1.0.0"))["id"]
    (old,) = await gateway.pids(id)
    pipe, go = pipes(tmp_path)
    calling = asyncio.create_task(gateway.call(id, "begin", pipe=str(pipe), go=str(go)))
    await opened(pipe)
    await gateway.ask("PUT", f"/env-service/{id}", {"version": "1.1.0"})
    await gateway.until(id, good=2)
    assert (await gateway.call(id, "who"))["version"] == "1.1.0"
    with open_for_both(go):
        assert (await calling)["pid"] == old
    await gateway.store.until(id, lambda record: bool(record and len(record.instances) == 1))
    assert len(replica_processes(gateway.home)) == 1


async def test_a_version_that_does_not_start_leaves_the_old_one_serving(gateway: ServiceGateway) -> None:
    id = (await gateway.create(envName="notes@1.0.0", replicas=2))["id"]
    await gateway.until(id, available=2)
    before = await gateway.pids(id)
    await gateway.ask("PUT", f"/env-service/{id}", {"image": "notes@2.0.0-broken"})
    record = await gateway.store.until(id, lambda record: bool(record and record.reason))
    assert record
    assert (record.status, record.available) == ("Updating", 2)
    assert "this version is broken" in (record.reason or "")
    assert await gateway.pids(id) == before
    await gateway.ask("PUT", f"/env-service/{id}", {"version": "1.1.0"})
    record = await gateway.until(id, generation=3, available=2)
    assert record.reason is None
    assert (await gateway.call(id, "who"))["version"] == "1.1.0"


async def test_variables_are_added_to_those_that_a_service_has(gateway: ServiceGateway) -> None:
    id = (await gateway.create(environment_variables={"A": "1", "B": "1"}))["id"]
    status, reply = await gateway.ask("PUT", f"/env-service/{id}", {"environment_variables": {"B": "2", "C": "2"}})
    assert (status, reply["data"]["environment_variables"]) == (200, dict.fromkeys("ABC", "***"))
    await gateway.until(id, generation=2, good=2)
    seen = (await gateway.call(id, "who"))["variables"]
    assert [seen[name] for name in "ABC"] == ["1", "2", "2"]


async def test_a_change_that_changes_nothing_restarts_nothing(gateway: ServiceGateway) -> None:
    id = (await gateway.create(environment_variables={"A": "1"}))["id"]
    for same in ({}, {"replicas": 1}, {"environment_variables": {"A": "1"}}):
        assert (await gateway.ask("PUT", f"/env-service/{id}", same))[0] == 200
    record = await ServiceRecords(gateway.store).find(id)
    assert record
    assert record.generation == 1


async def test_of_changes_at_once_each_is_made_whole(gateway: ServiceGateway) -> None:
    id = (await gateway.create(ready=False))["id"]
    await asyncio.gather(
        *(
            gateway.ask("PUT", f"/env-service/{id}", {"environment_variables": {"A": str(n), "B": str(n)}})
            for n in range(8)
        )
    )
    record = await ServiceRecords(gateway.store).find(id)
    assert record
    assert record.setup.variables["A"] == record.setup.variables["B"]
    assert record.generation == 9
    await gateway.until(id, good=9, available=1)
    seen = (await gateway.call(id, "who"))["variables"]
    assert seen["A"] == seen["B"] == record.setup.variables["A"]


@dataclass(eq=False)
class _Place:
    generation: int
    serves: bool


_PLACES = st.lists(st.builds(_Place, st.integers(1, 3), st.booleans()), max_size=8)


@given(_PLACES, st.integers(1, 6))
def test_every_plan_leads_to_what_is_wanted_and_never_below_it(here: list[_Place], wanted: int) -> None:
    for _ in range(30):
        served = sum(place.serves for place in here)
        missing, surplus = plan(here, 3, wanted, overlap=True)  # type: ignore[arg-type]
        here = [place for place in here if place not in surplus]
        assert sum(place.serves for place in here) >= min(served, wanted)
        here += [_Place(3, False) for _ in range(missing)]
        for place in here:
            place.serves |= place.generation == 3  # what was started comes up
    assert [place.generation for place in here] == [3] * wanted


# Ending one


async def test_delete_leaves_nothing_not_even_of_a_call_under_way(gateway: ServiceGateway, tmp_path: Path) -> None:
    id = (await gateway.create(replicas=2))["id"]
    pipe, go = pipes(tmp_path)
    calling = asyncio.create_task(
        gateway.ask("POST", f"/services/{id}/tools/begin", {"pipe": str(pipe), "go": str(go)})
    )
    await opened(pipe)
    status, reply = await gateway.ask("DELETE", f"/env-service/{id}")
    assert (status, reply["data"]) == (200, "Deleted successfully")
    assert gateway.leftovers() == []
    await asyncio.gather(calling, return_exceptions=True)
    assert (await gateway.ask("GET", f"/env-service/{id}"))[0] == 404
    assert (await gateway.ask("GET", "/env-service/*/list"))[1]["data"] == []
    assert await gateway.store.totals("instances") == [0]
    with pytest.raises(NotFound):
        gateway.services.origin(id)


async def test_delete_does_not_wait_for_what_an_old_replica_still_does(
    gateway: ServiceGateway, tmp_path: Path
) -> None:
    id = (await gateway.create(envName="notes@1.0.0"))["id"]
    pipe, go = pipes(tmp_path)
    call = {"pipe": str(pipe), "go": str(go)}
    calling = asyncio.create_task(gateway.ask("POST", f"/services/{id}/tools/begin", call))
    await opened(pipe)
    await gateway.ask("PUT", f"/env-service/{id}", {"version": "1.1.0"})
    await gateway.until(id, good=2)
    assert not calling.done()
    assert (await gateway.ask("DELETE", f"/env-service/{id}"))[0] == 200
    assert gateway.leftovers() == []
    await asyncio.gather(calling, return_exceptions=True)


async def test_a_service_can_be_deleted_while_it_starts(gateway: ServiceGateway) -> None:
    id = (await gateway.create(ready=False, replicas=2))["id"]
    await gateway.store.until(id, lambda record: bool(record and len(record.instances) == 2))
    assert (await gateway.ask("DELETE", f"/env-service/{id}"))[0] == 200
    assert gateway.leftovers() == []
