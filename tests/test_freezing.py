"""Freezing: who nobody calls gets no CPU, and no call ever waits for a frozen instance."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.base.errors import NotFound, Unavailable
from aenv.base.models import CreateInstance, CreateService
from aenv.control.gateway.parts import Parts
from aenv.control.serving.accounts import LOCAL
from conformance.engine import opened
from tests.frost import FrostEngine
from tests.gateways import ECHO, Gateway, composed, listening, make_project, running_gateway
from tests.test_gateway_races import held

pytestmark = pytest.mark.slow

PORT = '''
import http.server
import threading


@register_tool
def serve() -> int:
    """A server inside; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_stream = self.path.endswith("stream")
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if is_stream else "text/plain")
            self.end_headers()
            self.wfile.write(b"data: begun")
            self.wfile.flush()
            if is_stream:
                threading.Event().wait()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
'''


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Frost:
    """A gateway whose engine freezes, whose clock the test moves, and one instance."""

    def __init__(self, made: Parts, gateway: Gateway, engine: FrostEngine, clock: Clock) -> None:
        self.made = made
        self.gateway = gateway
        self.engine = engine
        self.clock = clock
        self.id = ""

    def pass_by(self, seconds: float) -> None:
        """Time passes, and the sweeper has looked."""
        self.clock.now += seconds
        self.made.freezing.check(self.id)

    async def freeze(self, seconds: float = 60.0) -> None:
        self.pass_by(seconds)
        await self.engine.until("freeze")

    async def call(self, text: str = "hello") -> str:
        return str(await self.gateway.call(self.id, "echo", text=text))

    async def ask(self, what: str = "", method: str = "GET", body: Any = None) -> Any:
        status, reply = await self.gateway.ask(method, f"/env-instance/{self.id}{what}", body)
        assert status == 200, reply
        return reply["data"]

    @property
    def is_stopped(self) -> bool:
        return psutil.Process(self.engine.pids[self.id]).status() == psutil.STATUS_STOPPED


@contextlib.asynccontextmanager
async def frost_in(tmp_path: Path, create: bool = True, **deploy: Any) -> AsyncIterator[Frost]:
    home, clock = tmp_path / "home", Clock()
    home.mkdir()
    engine = FrostEngine(home)
    project = make_project(tmp_path, code=ECHO + PORT, **deploy)
    async with composed(home, project, engine=engine, clock=clock) as made, listening(made) as gateway:
        frost = Frost(made, gateway, engine, clock)
        if create:
            frost.id = (await made.creator.create(CreateInstance(env_name="echo"), LOCAL)).id
        yield frost


@pytest.fixture
async def frost(tmp_path: Path) -> AsyncIterator[Frost]:
    async with frost_in(tmp_path) as frost:
        yield frost


# When


async def test_an_instance_that_nobody_calls_is_frozen_and_the_next_call_thaws_it(frost: Frost) -> None:
    frost.pass_by(59)
    assert (await frost.ask())["frozen"] is False
    await frost.freeze(1)
    assert frost.is_stopped
    shown = await frost.ask()
    assert (shown["status"], shown["frozen"]) == ("Running", True)
    listed = (await frost.gateway.ask("GET", "/env-instance/*/list"))[1]["data"]
    assert [row["frozen"] for row in listed] == [True]
    assert await frost.call() == "hello"
    await frost.engine.until("thaw")
    assert (await frost.ask())["frozen"] is False


async def test_a_call_begins_the_time_anew(frost: Frost) -> None:
    frost.pass_by(50)
    await frost.call()
    frost.pass_by(50)
    assert (frost.engine.did, frost.is_stopped) == ([], False)
    await frost.freeze(10)
    await frost.call()
    await frost.engine.until("thaw")
    frost.pass_by(59)
    assert frost.engine.did == []
    await frost.freeze(1)


async def test_events_tell_of_the_last_time_and_are_not_swamped(frost: Frost) -> None:
    for _ in range(3):
        await frost.freeze()
        await frost.call()
        await frost.engine.until("thaw")
    events = await frost.ask("/events")
    assert [event["what"] for event in events] == ["requested", "running", "frozen", "thawed"]
    await frost.ask("/ttl", "PUT", {"ttl": "1h"})
    events = await frost.ask("/events")
    assert [event["what"] for event in events][2:] == ["frozen", "thawed", "renewed"]


async def test_the_environment_says_after_how_long(tmp_path: Path) -> None:
    async with frost_in(tmp_path, freezeAfter="5m") as frost:
        frost.pass_by(299)
        assert frost.engine.did == []
        await frost.freeze(1)


async def test_an_environment_can_ask_never_to_be_frozen(tmp_path: Path) -> None:
    async with frost_in(tmp_path, freezeAfter=0) as frost:
        frost.pass_by(10_000)
        assert (frost.engine.did, frost.is_stopped) == ([], False)


async def test_the_sweeper_freezes_by_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    engine = FrostEngine(home)
    project = make_project(tmp_path)
    async with composed(home, project, engine=engine, freeze_after=0.01) as made:
        await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
        await engine.until("freeze")


async def test_an_engine_that_cannot_freeze_is_not_asked_to(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path), freeze_after=0.001) as gateway:
        instance = await gateway.create()
        assert instance["frozen"] is False
        assert await gateway.call(instance["id"], "echo", text="x") == "x"


async def test_replicas_of_services_are_never_frozen(tmp_path: Path) -> None:
    async with frost_in(tmp_path, create=False) as frost:
        service = await frost.made.services.create(CreateService(envName="echo"), LOCAL)
        while (await frost.made.services.get(service.id, LOCAL)).status != "Running":
            await asyncio.sleep(0.01)  # nobody tells when it does
        (frost.id,) = frost.engine.pids
        frost.pass_by(10_000)
        assert (frost.made.freezing.frozen, frost.is_stopped) == ({}, False)


# Calls under way


async def test_a_call_under_way_keeps_its_instance_running(frost: Frost, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    target = f"/instances/{frost.id}/tools/hang"
    hanging = asyncio.create_task(
        frost.gateway.ask("POST", target, {"pipe": str(pipe)}, origin=frost.gateway.data)
    )
    while not frost.made.supervisor[frost.id].calls:
        await asyncio.sleep(0)
    frost.pass_by(1000)
    frost.pass_by(1000)
    assert (frost.engine.did, frost.is_stopped) == ([], False)
    hanging.cancel()  # the client goes, and with it the call
    await opened(pipe)
    while frost.made.supervisor[frost.id].calls:
        await asyncio.sleep(0.001)  # nobody tells when the gateway has noticed
    frost.pass_by(59)
    assert frost.engine.did == []
    await frost.freeze(1)


async def test_a_stream_that_a_client_holds_open_does_not(frost: Frost) -> None:
    port = (await frost.gateway.call(frost.id, "serve"))["result"]
    url = (await frost.ask("/presign-url", "POST", {"port": port}))["url"]
    path = "/ports/" + url.partition("/ports/")[2] + "stream"
    stream = await frost.gateway.pool.request(frost.gateway.data, "GET", path)
    assert stream.header(b"content-type") == "text/event-stream"
    assert b"begun" in await anext(aiter(stream))
    await frost.freeze()
    assert await frost.call() == "hello"
    stream.close()


async def test_two_calls_at_once_thaw_it_once(frost: Frost) -> None:
    await frost.freeze()
    assert await asyncio.gather(*(frost.call(text) for text in "abc")) == ["a", "b", "c"]
    await frost.engine.until("thaw")


@pytest.mark.parametrize("after", [False, True], ids=["before it is frozen", "when it is frozen"])
async def test_a_call_that_comes_while_the_engine_freezes_is_answered(frost: Frost, after: bool) -> None:
    with held(frost.engine, "freeze", after=after) as freezing:
        frost.pass_by(60)
        await freezing.reached.wait()
        calls = [asyncio.create_task(frost.call(text)) for text in "ab"]
        while frost.made.supervisor[frost.id].calls < 2:
            await asyncio.sleep(0.001)  # nobody tells when the gateway has them
        assert "thaw" not in frost.engine.did  # it would have come first, and changed nothing
        freezing.go.set()
        assert await asyncio.gather(*calls) == ["a", "b"]
    await frost.engine.until("freeze", "thaw")
    assert not frost.is_stopped


async def test_a_call_that_comes_while_the_store_is_asked_prevents_the_freeze(frost: Frost) -> None:
    ledger = frost.made.freezing._ledger
    with held(ledger, "is_kept_awake", after=True) as asking:
        frost.pass_by(60)
        await asking.reached.wait()
        assert await frost.call() == "hello"
        asking.go.set()
    await frost.call()
    assert frost.engine.did == []
    frost.pass_by(59)
    assert frost.engine.did == []
    await frost.freeze(1)


async def test_a_client_that_goes_while_its_instance_thaws_leaves_it_running(frost: Frost) -> None:
    await frost.freeze()
    with held(frost.engine, "thaw", after=True) as thawing:
        calling = asyncio.create_task(frost.made.instances.use(frost.id))
        await thawing.reached.wait()
        calling.cancel()
        await asyncio.wait({calling})
        thawing.go.set()
    assert await frost.call() == "hello"
    assert frost.made.supervisor[frost.id].calls == 0
    await frost.engine.until("thaw")


async def test_a_freeze_that_fails_is_undone_and_not_tried_again(frost: Frost) -> None:
    with held(frost.engine, "freeze", after=True, error=OSError("no such group")) as freezing:
        frost.pass_by(60)
        await freezing.reached.wait()
        freezing.go.set()
        await frost.engine.until("freeze", "thaw")
    assert await frost.call() == "hello"
    frost.pass_by(1000)
    assert (frost.engine.did, frost.is_stopped) == ([], False)


async def test_a_freeze_that_does_not_end_is_given_up(frost: Frost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aenv.control.instances.freezing._PATIENCE", 0.05)  # seconds
    with held(frost.engine, "freeze", after=True) as freezing:
        frost.pass_by(60)
        await freezing.reached.wait()
        assert await frost.call() == "hello"
    assert not frost.is_stopped


async def test_an_instance_that_cannot_be_thawed_is_said_to_be_and_is_tried_again(frost: Frost) -> None:
    await frost.freeze()
    frost.engine.thaws_fail = True
    status, reply = await frost.gateway.ask(
        "POST", f"/instances/{frost.id}/tools/echo", {"text": "x"}, origin=frost.gateway.data
    )
    assert (status, reply["error"]) == (503, "unavailable")
    assert "could not be thawed" in reply["message"]
    frost.engine.thaws_fail = False
    assert await frost.call() == "hello"


# What else needs it to run


async def test_commands_files_history_and_ports_thaw_it(frost: Frost) -> None:
    port = (await frost.gateway.call(frost.id, "serve"))["result"]
    for what, method, body in (
        ("/files/a", "PUT", b"x"),
        ("/files", "GET", None),
        ("/history", "GET", None),
        ("/presign-url", "POST", {"port": port}),
        ("/files/a", "DELETE", None),
    ):
        await frost.freeze()
        await frost.ask(what, method, body)
        await frost.engine.until("thaw")


async def test_a_command_keeps_it_running_until_it_ends(frost: Frost, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    await frost.freeze()
    body = b'{"command": "echo begun; cat ' + str(pipe).encode() + b'"}'
    target = f"/env-instance/{frost.id}/exec"
    response = await frost.gateway.pool.request(frost.gateway.control, "POST", target, (), body)
    pieces = aiter(response)
    assert b"begun" in await anext(pieces)
    await frost.engine.until("thaw")
    frost.pass_by(1000)
    assert frost.engine.did == []
    os.close(os.open(pipe, os.O_WRONLY))
    assert b"exit" in b"".join([piece async for piece in pieces])
    await frost.freeze()


async def test_a_port_inside_is_reached_through_the_frost(frost: Frost) -> None:
    port = (await frost.gateway.call(frost.id, "serve"))["result"]
    url = (await frost.ask("/presign-url", "POST", {"port": port}))["url"]
    await frost.freeze()
    path = "/ports/" + url.partition("/ports/")[2]
    response = await frost.gateway.pool.request(frost.gateway.data, "GET", path)
    await response.read()
    assert response.status == 200
    await frost.engine.until("thaw")


async def test_looking_at_it_does_not_thaw_it(frost: Frost) -> None:
    await frost.freeze()
    await frost.ask()
    await frost.ask("/events")
    status, _ = await frost.gateway.ask("GET", "/env-instance/*/list")
    response = await frost.gateway.pool.request(frost.gateway.control, "GET", f"/env-instance/{frost.id}/logs")
    await response.read()
    assert (status, response.status, frost.engine.did) == (200, 200, [])


# Ends


async def test_a_frozen_instance_is_deleted_like_others(frost: Frost) -> None:
    await frost.freeze()
    await frost.ask(method="DELETE")
    await frost.engine.until("destroy")
    assert (frost.made.freezing.frozen, frost.gateway.leftovers()) == ({}, [])


async def test_a_delete_that_comes_while_the_engine_freezes_waits_for_it(frost: Frost) -> None:
    with held(frost.engine, "freeze") as freezing:
        frost.pass_by(60)
        await freezing.reached.wait()
        deleting = asyncio.create_task(frost.made.instances.delete(frost.id))
        await asyncio.sleep(0)
        with pytest.raises(NotFound, match="has ended: deleted"):
            await frost.made.instances.use(frost.id)
        assert not deleting.done()
        freezing.go.set()
        await deleting
    assert frost.engine.did == ["freeze", "destroy"]


# Other gateways


async def test_the_next_gateway_thaws_what_it_takes_over(tmp_path: Path) -> None:
    home, clock = tmp_path / "home", Clock()
    home.mkdir()
    engine, project = FrostEngine(home), make_project(tmp_path)
    async with composed(home, project, engine=engine, clock=clock, keep_instances=True) as made:
        id = (await made.creator.create(CreateInstance(env_name="echo"), LOCAL)).id
        clock.now += 60
        made.freezing.check(id)
        await engine.until("freeze")
    async with composed(home, project, engine=engine, clock=clock) as made, listening(made) as gateway:
        await engine.until("thaw")
        assert await gateway.call(id, "echo", text="x") == "x"
        clock.now += 60
        made.freezing.check(id)
        await engine.until("freeze")


@contextlib.asynccontextmanager
async def neighbour(frost: Frost, tmp_path: Path) -> AsyncIterator[Parts]:
    """Another gateway on the same home, with an engine object of its own."""
    engine = FrostEngine(tmp_path / "home")
    engine.pids = frost.engine.pids
    async with composed(tmp_path / "home", tmp_path / "echo-1.0.0", engine=engine, clock=frost.clock) as made:
        yield made


async def test_a_call_through_a_neighbour_thaws_it_and_keeps_it_awake(frost: Frost, tmp_path: Path) -> None:
    await frost.freeze()
    async with neighbour(frost, tmp_path) as made:
        with await made.instances.use(frost.id):
            assert not frost.is_stopped
    await frost.call()  # here it still counts as frozen
    await frost.engine.until("thaw")
    frost.pass_by(60)
    await frost.call()
    assert (frost.engine.did, frost.is_stopped) == ([], False)


async def test_a_freeze_that_meets_a_call_through_a_neighbour_is_undone(frost: Frost, tmp_path: Path) -> None:
    async with neighbour(frost, tmp_path) as made:
        with held(frost.engine, "freeze") as freezing:
            frost.pass_by(60)
            await freezing.reached.wait()
            with await made.instances.use(frost.id):
                freezing.go.set()
                await frost.engine.until("freeze", "thaw")
                assert not frost.is_stopped


async def test_who_cannot_ask_the_store_freezes_nothing(frost: Frost) -> None:
    ledger = frost.made.freezing._ledger
    with held(ledger, "is_kept_awake", error=Unavailable("the store is down")) as asking:
        frost.pass_by(60)
        await asking.reached.wait()
        asking.go.set()
        await frost.call()
    assert (frost.engine.did, frost.is_stopped) == ([], False)
