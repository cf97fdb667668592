"""Data workers: real processes that serve the data port, killed, frozen under, revoked and counted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.base import mcp
from aenv.base.errors import NetworkError
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.control.board.seats import SeatColumn
from aenv.control.gateway.forwarding import data_connection, forwarder
from aenv.control.gateway.forwarding.data_port import serving_data
from aenv.control.gateway.gateway_app import GatewayAddress
from aenv.control.gateway.parts import Parts
from aenv.control.serving import listeners
from aenv.control.serving.accounts import LOCAL, Accounts, Role
from aenv.control.stores.sqlite import SqliteStore
from tests.frost import FrostEngine
from tests.gateways import Gateway, composed, make_project, running_gateway
from tests.raw import connected, request
from tests.test_gateway_process import Program

pytestmark = pytest.mark.slow  # gateways with several processes

WORKERS = 2


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path), workers=WORKERS) as gateway:
        yield gateway


def workers_of(pid: int) -> list[psutil.Process]:
    """The data workers of a gateway."""
    found = []
    for one in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):  # it ends at this moment
            if "aenv.control.gateway.forwarding.worker" in one.cmdline():
                found.append(one)
    return found


@contextlib.asynccontextmanager
async def two_workers(made: Parts) -> AsyncIterator[Gateway]:
    """The data port of parts that a test has composed."""
    with listeners.bind_tcp("127.0.0.1", 0) as control, listeners.bind_tcp("127.0.0.1", 0) as data:
        address = GatewayAddress("127.0.0.1", control.getsockname()[1], data.getsockname()[1])
        app = made.shared.front.app(made.routes(address.data_port))
        async with (
            listeners.serving(app, [control]),
            serving_data(made, [data], address.data_port),
            Pool() as pool,
        ):
            yield Gateway(address, pool, made.settings.home)
            await made.close()


async def counted(gateway: Gateway) -> dict[str, float]:
    response = await gateway.pool.request(gateway.control, "GET", "/metrics")
    lines = (await response.read()).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def echoes(counts: dict[str, float]) -> float:
    """How many calls of a tool were answered with 200."""
    return counts.get(
        'aenv_api_mcp_requests_total{endpoint="/other",method="POST",rpc_method="",status="200"}', 0.0
    )


async def until_echoes(gateway: Gateway, number: float) -> None:
    """Return when so many are counted: that is done when the answer has been written. More are an error."""
    while (found := echoes(await counted(gateway))) != number:
        assert found < number
        await asyncio.sleep(0)


async def on_own_connection(gateway: Gateway, id: str, times: int = 20) -> None:
    async with Pool() as pool:
        own = Gateway(gateway.address, pool, gateway.home)
        for number in range(times):
            assert await own.call(id, "echo", text=str(number)) == str(number)


async def test_calls_go_through_every_worker_and_each_is_counted_once(gateway: Gateway) -> None:
    instance = await gateway.create()
    await asyncio.gather(*(on_own_connection(gateway, instance["id"]) for _ in range(8)))
    await until_echoes(gateway, 160)
    busy = [worker for worker in workers_of(os.getpid()) if worker.net_connections()]
    assert len(busy) == WORKERS


async def test_a_worker_that_is_killed_breaks_its_own_calls_and_is_replaced(tmp_path: Path) -> None:
    async with (
        composed(tmp_path / "home", make_project(tmp_path), workers=WORKERS) as made,
        two_workers(made) as it,
    ):
        instance = await it.create()
        seat = made.supervisor[instance["id"]].seat
        assert seat
        hanging = [asyncio.create_task(hang(it, instance["id"])) for _ in range(8)]
        await until(lambda: seat.calls == 8)
        victim, other = workers_of(os.getpid())
        victim.kill()
        await until(lambda: len(workers_of(os.getpid())) == WORKERS and not victim.is_running())
        broken = [task for task in hanging if task.done()]
        assert 0 < len(broken) < 8
        assert {task.result() for task in broken} == {"broken"}
        assert seat.calls == 8 - len(broken)
        await asyncio.gather(*(on_own_connection(it, instance["id"], 5) for _ in range(8)))
        assert other.is_running()
        for task in hanging:
            task.cancel()


async def hang(gateway: Gateway, id: str) -> str:
    async with Pool() as pool:
        try:
            await Gateway(gateway.address, pool, gateway.home).call(id, "hang")
        except NetworkError:
            return "broken"
    return "answered"


async def test_what_a_killed_worker_has_counted_is_not_lost(gateway: Gateway) -> None:
    instance = await gateway.create()
    await asyncio.gather(*(on_own_connection(gateway, instance["id"], 10) for _ in range(4)))
    for worker in workers_of(os.getpid()):
        worker.kill()
    await asyncio.gather(*(on_own_connection(gateway, instance["id"], 10) for _ in range(4)))
    await until_echoes(gateway, 80)


async def test_an_ended_instance_is_not_found_and_the_reason_is_said(gateway: Gateway) -> None:
    instance = await gateway.create()
    await on_own_connection(gateway, instance["id"], 3)
    await gateway.ask("DELETE", f"/env-instance/{instance['id']}")
    for _ in range(4):
        async with Pool() as pool:
            own = Gateway(gateway.address, pool, gateway.home)
            status, reply = await own.ask("POST", f"/instances/{instance['id']}/tools/echo", {}, origin=own.data)
            assert (status, reply["error"]) == (404, "not_found")
            assert "it has ended: deleted" in reply["message"]


async def test_an_instance_that_dies_during_a_call_is_a_bad_gateway_with_the_reason(gateway: Gateway) -> None:
    instance = await gateway.create()
    target = f"/instances/{instance['id']}/tools/die"
    status, reply = await gateway.ask("POST", target, {}, origin=gateway.data)
    assert (status, reply["error"]) == (502, "tool_server")
    assert "ended before it had answered: " in reply["message"]


async def test_requests_that_are_sent_ahead_are_answered_in_order(gateway: Gateway) -> None:
    instance = await gateway.create()
    path = f"/instances/{instance['id']}/tools/echo"
    texts = [f"text {number}" for number in range(20)]
    heads = [request("POST", path, mcp.dumps({"text": text})) for text in texts]
    heads.insert(10, request("GET", "/health"))  # the owner answers this one

    def exchange() -> list[Any]:
        with connected(gateway.address.data_url) as raw:
            raw.send(b"".join(heads))
            return [raw.reply().json() for _ in heads]

    replies = await asyncio.to_thread(exchange)
    assert replies.pop(10)["status"] == "healthy"
    assert [reply["data"]["content"][0]["text"] for reply in replies] == texts


async def test_a_client_that_asks_first_is_told_to_go_on(gateway: Gateway) -> None:
    instance = await gateway.create()
    body = mcp.dumps({"text": "hi"})
    head = request("POST", f"/instances/{instance['id']}/tools/echo", headers=(("expect", "100-continue"),))
    head = head.replace(b"content-length: 0", b"content-length: %d" % len(body))

    def exchange() -> Any:
        with connected(gateway.address.data_url) as raw:
            raw.send(head)
            assert raw.socket.recv(100).startswith(b"HTTP/1.1 100 ")
            raw.send(body)
            return raw.reply().json()

    assert (await asyncio.to_thread(exchange))["data"]["content"][0]["text"] == "hi"


class Clock:
    """The clock of the workers, and ahead of it as far as a test likes."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_an_idle_instance_ends_and_one_that_workers_call_does_not(tmp_path: Path) -> None:
    clock = Clock()
    parts = composed(tmp_path / "home", make_project(tmp_path), workers=WORKERS, clock=clock)
    async with parts as made, two_workers(made) as gateway:
        instance = await gateway.create(idle_timeout="20m")
        supervised = made.supervisor[instance["id"]]
        hanging = asyncio.create_task(hang(gateway, instance["id"]))
        await until(lambda: supervised.is_called)
        assert supervised.calls == 0  # it is a worker's
        clock.ahead = 1500
        made.supervisor.check(instance["id"])
        await gateway.ask("GET", f"/env-instance/{instance['id']}")
        assert supervised.is_live
        hanging.cancel()
        await until(lambda: not supervised.is_called)
        made.supervisor.check(instance["id"])
        await supervised.ended.wait()
        assert supervised.record.reason == "it was not used for 1200 s"


async def test_a_frozen_instance_is_thawed_by_a_call_through_any_worker(tmp_path: Path) -> None:
    home = tmp_path / "home"
    engine = FrostEngine(home)
    settings: dict[str, Any] = {"engine": engine, "workers": WORKERS, "freeze_after": 0.2}
    async with composed(home, make_project(tmp_path), **settings) as made, two_workers(made) as gateway:
        instance = await gateway.create()
        await engine.until("freeze")
        for _ in range(4):
            await on_own_connection(gateway, instance["id"], 3)
            await engine.until("thaw", "freeze")


async def test_an_instance_with_a_call_in_a_worker_is_not_frozen(tmp_path: Path) -> None:
    home, clock = tmp_path / "home", Clock()
    engine = FrostEngine(home)
    settings: dict[str, Any] = {"engine": engine, "workers": WORKERS, "clock": clock}
    async with composed(home, make_project(tmp_path), **settings) as made, two_workers(made) as gateway:
        instance = await gateway.create()
        supervised = made.supervisor[instance["id"]]
        hanging = asyncio.create_task(hang(gateway, instance["id"]))
        await until(lambda: supervised.is_called)
        assert supervised.calls == 0  # it is a worker's
        clock.ahead = 100
        made.freezing.check(instance["id"])
        await gateway.ask("GET", f"/env-instance/{instance['id']}")
        assert supervised.frozen_at is None
        hanging.cancel()
        await until(lambda: not supervised.is_called)
        made.freezing.check(instance["id"])
        await engine.until("freeze")


async def test_a_call_that_begins_while_its_instance_is_being_frozen_is_answered(tmp_path: Path) -> None:
    """The worker looks for the mark just before it is set, the owner at the counts just before the call."""
    home, clock = tmp_path / "home", Clock()
    engine = FrostEngine(home)
    async with composed(home, make_project(tmp_path), engine=engine, clock=clock) as made:
        instance = (await made.creator.create(CreateInstance(env_name="echo"), LOCAL)).id
        column = SeatColumn(made.shared.board, 1)
        seated = column.find(instance)
        assert seated
        freeze = engine.freeze

        async def call_meanwhile(id: str) -> None:
            made.supervisor[id].mark_frozen(None)  # what the worker sees
            assert column.begin(seated, time.monotonic())
            made.supervisor[id].mark_frozen(time.time())
            await freeze(id)

        engine.freeze = call_meanwhile  # type: ignore[method-assign]
        clock.ahead = 100
        made.freezing.check(instance)
        await engine.until("freeze", "thaw")
        column.end(seated, time.monotonic())


async def test_a_revoked_account_can_call_no_more(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with SqliteStore(home / "aenv.db") as store:
        alice, token = await Accounts(store).create("alice", Role.USER)
        _, boss = await Accounts(store).create("boss", Role.ADMIN)
    async with running_gateway(home, make_project(tmp_path), workers=WORKERS) as gateway:
        by_alice = [("authorization", f"Bearer {token}")]
        id = "echo-" + "a1b2c3d4e5f6g7h8j9k0"
        _, reply = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo@1.0.0"}, by_alice)
        by_token = [("authorization", f"Bearer {reply['data']['token']}")]

        async def call() -> int:
            target = f"/instances/{id}/tools/echo"
            return (await gateway.ask("POST", target, {"text": "hi"}, by_token, origin=gateway.data))[0]

        assert [await call() for _ in range(5)] == [200] * 5
        assert (await gateway.ask("POST", f"/instances/{id}/tools/echo", {}, origin=gateway.data))[0] == 401
        by_boss = [("authorization", f"Bearer {boss}")]
        assert (await gateway.ask("DELETE", f"/token/{alice.id}", headers=by_boss))[0] == 200
        assert await call() == 401


async def test_workers_end_with_the_owner_however_it_ends(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = Program(home, make_project(tmp_path), workers=WORKERS)
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        await gateway.create()
        workers = workers_of(program.pid)
        assert len(workers) == WORKERS
        await program.end(signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, workers)
        with socket.create_server(("127.0.0.1", gateway.address.data_port or 0)):
            pass  # the port is free
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(home) in process.environ().get("AENV_WORKSPACE", ""):
                    process.kill()


async def test_workers_that_are_told_to_stop_answer_what_they_have_begun(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    code = f'''
    from aenv import register_tool

    @register_tool
    def wait() -> str:
        """Until the pipe is opened."""
        open({str(go)!r}).close()
        return "done"
    '''
    project = make_project(tmp_path, "slow", code=code)
    async with (
        composed(tmp_path / "home", project, workers=WORKERS) as made,
        Pool() as pool,
        contextlib.AsyncExitStack() as stack,
    ):
        data = stack.enter_context(listeners.bind_tcp("127.0.0.1", 0))
        port = data.getsockname()[1]
        await stack.enter_async_context(serving_data(made, [data], port))
        gateway = Gateway(GatewayAddress("127.0.0.1", port, port), pool, tmp_path)
        record = await made.creator.create(CreateInstance(env_name="slow"), LOCAL)
        calling = asyncio.create_task(gateway.call(record.id, "wait"))
        await until(lambda: made.supervisor[record.id].is_called)
        stopping = asyncio.create_task(stack.aclose())
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: os.close(os.open(go, os.O_WRONLY)))
        assert await calling == "done"
        await stopping


async def test_while_workers_are_killed_every_answer_is_that_of_its_own_request(gateway: Gateway) -> None:
    instances = [(await gateway.create())["id"] for _ in range(2)]
    stopped = asyncio.Event()
    answered = broken = 0

    async def client(number: int) -> None:
        nonlocal answered, broken
        async with Pool() as pool:
            own = Gateway(gateway.address, pool, gateway.home)
            turn = 0
            while not stopped.is_set():
                turn += 1
                # Small, above what is held whole, and large enough to wait for the other side.
                text = f"{number} {turn} " * (1, 10, 20_000, 60_000)[turn % 4]
                try:
                    assert await own.call(instances[turn % 2], "echo", text=text) == text
                    answered += 1
                except NetworkError:
                    broken += 1

    clients = [asyncio.create_task(client(number)) for number in range(6)]

    async def until_answered(more: int) -> None:
        enough = answered + more
        await until(lambda: answered >= enough or any(task.done() for task in clients))

    for round in range(4):
        await until_answered(100)
        workers = workers_of(os.getpid())
        workers[round % len(workers)].kill()
    await until_answered(100)
    stopped.set()
    await asyncio.gather(*clients)
    assert broken <= 4 * 6
    # A call is counted when its answer is written: each kill, and each client's last call, may come in between.
    assert answered - 4 - 6 <= echoes(await counted(gateway)) <= answered + broken


async def test_a_client_that_asks_for_the_end_of_its_connection_gets_it(gateway: Gateway) -> None:
    instance = await gateway.create()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.address.data_port)
    head = f"GET /instances/{instance['id']}/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    writer.write(head.encode())
    reply = await reader.read()  # to the end of the connection
    assert b"HTTP/1.1 200" in reply
    assert b"connection: close" in reply.partition(b"\r\n\r\n")[0].lower()
    writer.close()


async def test_a_client_that_reads_nothing_is_hung_up_on_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_connection, "_KEEP_ALIVE", 0.2)
    monkeypatch.setattr(data_connection, "_UNREAD_TIMEOUT", 0.2)
    async with running_gateway(tmp_path / "home", make_project(tmp_path), workers=1) as gateway:
        path = f"/instances/{(await gateway.create())['id']}/tools/echo"
        asked = request("POST", path, mcp.dumps({"text": "x" * 60_000}))

        def ask_and_read_nothing() -> None:
            with connected(gateway.address.data_url) as raw:
                raw.socket.settimeout(20.0)
                while True:  # until all buffers on the way are full, and then until the connection is gone
                    raw.send(asked)

        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(ask_and_read_nothing)


async def test_connections_to_an_instance_that_is_not_called_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_IDLE_TIMEOUT", 0.2)
    async with running_gateway(tmp_path / "home", make_project(tmp_path), workers=1) as gateway:
        instance = await gateway.create()
        before = open_sockets()
        async with Pool() as pool:
            own = Gateway(gateway.address, pool, gateway.home)
            texts = [str(number) for number in range(4)]
            assert await asyncio.gather(*(own.call(instance["id"], "echo", text=text) for text in texts)) == texts
        await until(lambda: open_sockets() <= before)
        assert await gateway.call(instance["id"], "echo", text="again") == "again"


def open_sockets() -> int:
    """How many sockets this process has."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sum(link.startswith("socket:") for link in links)


async def test_calls_under_way_are_counted_whatever_a_worker_forgets(tmp_path: Path) -> None:
    async with (
        composed(tmp_path / "home", make_project(tmp_path), workers=WORKERS) as made,
        two_workers(made) as it,
    ):
        instance = await it.create()
        seat = made.supervisor[instance["id"]].seat
        assert seat
        column = SeatColumn(made.shared.board, 1)
        first = column.find(instance["id"])
        assert first and column.begin(first, 0.0)
        column._known.clear()  # as when it has met more instances than there are seats
        second = column.find(instance["id"])
        assert second and column.begin(second, 0.0)
        column.end(second, 0.0)
        assert seat.calls == 1
        column.end(first, 0.0)
        assert seat.calls == 0


async def test_workers_import_nothing_from_the_folder_that_the_gateway_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "httptools.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    async with running_gateway(tmp_path / "home", make_project(tmp_path), workers=WORKERS) as gateway:
        instance = await gateway.create()
        await on_own_connection(gateway, instance["id"], 1)
