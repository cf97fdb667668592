"""Reclaim: who is ended when memory is short, in which order, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from aenv.base.models import CreateInstance
from aenv.control.gateway.parts import Parts
from aenv.control.serving import memory
from aenv.control.serving.accounts import LOCAL
from tests.frost import FrostEngine
from tests.gateways import composed, make_project
from tests.test_gateway_races import held

pytestmark = pytest.mark.slow


class Short:
    """A host whose memory is short until so many instances have ended."""

    def __init__(self, engine: FrostEngine) -> None:
        self.engine = engine
        self.missing = 0

    def available(self) -> int:
        return 0 if self.engine.did.count("destroy") < self.missing else 1 << 40


@contextlib.asynccontextmanager
async def short(tmp_path: Path) -> AsyncIterator[tuple[Parts, Short, list[str]]]:
    """Four instances of which three allow to be ended; all are frozen, the last made first."""
    home, now = tmp_path / "home", 1000.0
    home.mkdir()
    engine = FrostEngine(home)
    projects = make_project(tmp_path, reclaim=True), make_project(tmp_path, "keeps")
    async with composed(home, *projects, engine=engine, clock=lambda: now) as made:
        host = Short(engine)
        made.reclaim._available = host.available
        names = ("echo", "echo", "keeps", "echo")
        ids = [(await made.creator.create(CreateInstance(env_name=name), LOCAL)).id for name in names]
        now += 60
        for id in reversed(ids):
            made.freezing.check(id)
            await engine.until("freeze")
        yield made, host, ids


async def test_the_longest_frozen_are_ended_and_no_more_than_needed(tmp_path: Path) -> None:
    async with short(tmp_path) as (made, host, ids):
        host.missing = 2
        await made.reclaim.relieve()
        assert set(made.supervisor) == {ids[0], ids[2]}
        ended = await made.instances.get(ids[3])
        assert ended.status == "Terminated"
        assert ended.reason
        assert ended.reason.startswith("memory was short, and it was frozen since 20")


async def test_only_those_are_ended_whose_environment_allows_it(tmp_path: Path) -> None:
    async with short(tmp_path) as (made, host, ids):
        host.missing = 100
        await made.reclaim.relieve()
        assert set(made.supervisor) == {ids[2]}


async def test_nobody_is_ended_while_there_is_memory(tmp_path: Path) -> None:
    async with short(tmp_path) as (made, _, ids):
        await made.reclaim.relieve()
        assert set(made.supervisor) == set(ids)


async def test_a_create_makes_room_first(tmp_path: Path) -> None:
    async with short(tmp_path) as (made, host, ids):
        host.missing = 1
        with held(host.engine, "create") as creating:
            making = asyncio.create_task(made.creator.create(CreateInstance(env_name="keeps"), LOCAL))
            await creating.reached.wait()
            assert ids[3] not in made.supervisor
            creating.go.set()
            await making


async def test_one_that_is_being_thawed_for_a_call_is_spared(tmp_path: Path) -> None:
    async with short(tmp_path) as (made, host, ids):
        host.missing = 1
        with held(host.engine, "thaw") as thawing:
            calling = asyncio.create_task(made.instances.use(ids[3]))
            await thawing.reached.wait()
            await made.reclaim.relieve()
            assert set(made.supervisor) == {ids[0], ids[2], ids[3]}
            thawing.go.set()
            (await calling).end()


async def test_it_is_looked_after_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aenv.control.instances.reclaim._LOOK_AGAIN", 0.01)  # seconds
    async with short(tmp_path) as (made, host, ids):
        instance = made.supervisor[ids[3]]
        host.missing = 1
        await instance.ended.wait()


def test_the_hosts_memory_is_what_the_kernel_says() -> None:
    assert memory.total_bytes() == psutil.virtual_memory().total
    assert 0 < memory.available_bytes() <= memory.total_bytes()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_pressure_is_told_by_what_the_kernel_calls_urgent(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket stands in for the kernel's file: nobody runs this machine out of memory."""
    ours, theirs = _tcp_pair()
    monkeypatch.setattr(memory.os, "open", lambda *_: os.dup(ours.fileno()))

    async def wait() -> None:
        with memory.pressure() as pressed:
            theirs.recv(100)  # the trigger
            assert not pressed.is_set()
            theirs.send(b"!", socket.MSG_OOB)
            await pressed.wait()
            assert pressed.is_set()

    with ours, theirs, asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(wait())


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


async def test_where_the_kernel_tells_nothing_nobody_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "_PRESSURE", str(tmp_path / "none"))
    with memory.pressure() as pressed:
        assert not pressed.is_set()


async def test_the_kernels_own_trigger_can_be_set() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with memory.pressure():
        pass
    assert len(os.listdir("/proc/self/fd")) == before
