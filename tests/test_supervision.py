"""Tasks that fail alone, loops that are started again, and a gateway whose parts fail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import StartFailed
from aenv.base.models import CreateInstance
from aenv.base.supervision import Tasks, kept_up
from aenv.base.wire import EnvStatus
from aenv.control.gateway.parts import Parts
from aenv.control.instances.records import Record
from aenv.control.instances.selection import Selection
from aenv.control.serving.accounts import LOCAL
from aenv.control.stores.base import Put
from aenv.engines.base import Address
from tests.gateways import composed, leftovers, make_project

pytestmark = pytest.mark.slow  # gateways and instances

ASKED = CreateInstance(env_name="echo")


@contextlib.contextmanager
def failing(owner: object, method: str, *, when: Any = lambda *_: True) -> Iterator[list[Any]]:
    """Let the calls of a method that `when` is about fail, as a bug would; tells which."""
    original, failed = getattr(owner, method), []

    async def call(*arguments: Any, **options: Any) -> Any:
        if not when(*arguments):
            return await original(*arguments, **options)
        failed.append(arguments)
        raise RuntimeError("injected")

    setattr(owner, method, call)  # over the method of a real object, which still does the other work
    try:
        yield failed
    finally:
        setattr(owner, method, original)


def records(status: str) -> Any:
    """Of the store's writes those that record this status of an instance."""
    return lambda *changes: any(isinstance(put, Put) and put.value.get("status") == status for put in changes)


async def still_serves(made: Parts) -> None:
    record = await made.creator.create(ASKED, LOCAL)
    await made.instances.delete(record.id)


class TestTasks:
    async def test_a_task_that_fails_ends_no_other_and_is_told_of(self, caplog: pytest.LogCaptureFixture) -> None:
        told: list[Exception] = []
        go = asyncio.Event()

        async def fail() -> None:
            raise ValueError("injected")

        async with Tasks() as tasks:
            other = tasks.create_task(go.wait())
            await asyncio.wait({tasks.create_task(fail(), told.append)})
            assert not other.done()
            go.set()
        assert other.result() is True
        assert [str(error) for error in told] == ["injected"]
        assert "a task failed" in caplog.text

    async def test_left_by_an_error_it_cancels_what_is_under_way(self) -> None:
        begun: list[asyncio.Task[Any]] = []

        async def leave() -> None:
            async with Tasks() as tasks:
                begun.append(tasks.create_task(asyncio.Event().wait()))
                raise ValueError("out")

        with pytest.raises(ValueError, match="out"):
            await leave()
        assert begun[0].cancelled()

    async def test_cancelled_while_it_waits_it_cancels_what_it_waits_for(self) -> None:
        inner: list[asyncio.Task[Any]] = []
        begun = asyncio.Event()

        async def wait() -> None:
            begun.set()
            await asyncio.Event().wait()

        async def outer() -> None:
            async with Tasks() as tasks:
                inner.append(tasks.create_task(wait()))

        task = asyncio.create_task(outer())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inner[0].cancelled()

    async def test_a_loop_that_fails_is_started_again_a_little_later_each_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delays: list[float] = []

        async def sleep(seconds: float) -> None:  # in place of the clock's
            delays.append(seconds)

        monkeypatch.setattr("aenv.base.supervision.asyncio.sleep", sleep)

        async def run() -> None:
            if len(delays) < 12:
                raise RuntimeError("injected")

        await kept_up("a loop", run)
        assert delays[:3] == [0.1, 0.2, 0.4]
        assert delays[-1] == 30.0


class TestLives:
    @pytest.fixture
    async def made(self, tmp_path: Path) -> Any:
        async with composed(tmp_path / "home", make_project(tmp_path)) as made:
            yield made
        assert leftovers(tmp_path / "home") == []

    @pytest.mark.parametrize("value", [float("nan"), "deep"])
    async def test_tools_that_the_store_refuses_fail_their_own_create_and_nothing_else(
        self, made: Parts, value: Any
    ) -> None:
        neighbour = await made.creator.create(ASKED, LOCAL)
        if value == "deep":
            value = []
            for _ in range(100_000):
                value = [value]
        create = made.engine.create

        async def forged(spec: Any) -> Address:
            return replace(await create(spec), tools=[{"name": "a", "x": value}])

        made.engine.create = forged  # type: ignore[method-assign]
        with pytest.raises(StartFailed, match="says of its tools cannot be recorded"):
            await made.creator.create(ASKED, LOCAL)
        made.engine.create = create  # type: ignore[method-assign]
        assert [*made.supervisor] == [neighbour.id]
        assert [*await made.engine.running()] == [neighbour.id]
        assert await made.shared.store.totals("instances") == [1]
        await still_serves(made)

    async def test_a_creation_whose_failure_cannot_be_recorded_either_leaves_nothing(self, made: Parts) -> None:
        neighbour = await made.creator.create(ASKED, LOCAL)
        with (
            failing(made.shared.store, "write", when=records("Running")),
            failing(made.transitions, "settle"),
            pytest.raises(StartFailed),
        ):
            await made.creator.create(ASKED, LOCAL)
        assert [*made.supervisor] == [neighbour.id]
        assert [*await made.engine.running()] == [neighbour.id]
        await still_serves(made)

    async def test_an_end_that_cannot_be_recorded_ends_the_instance_and_upkeep_corrects_the_record(
        self, made: Parts
    ) -> None:
        record, neighbour = [await made.creator.create(ASKED, LOCAL) for _ in range(2)]
        with failing(made.shared.store, "write", when=records("Terminated")) as refused:
            await made.instances.delete(record.id)
        assert refused
        assert [*await made.engine.running()] == [neighbour.id]
        await made.upkeep.tend()
        shown = await made.instances.get(record.id)
        assert (shown.status, shown.reason) == (EnvStatus.FAILED, "it ended while no gateway looked after it")
        await still_serves(made)

    @pytest.mark.parametrize("method", ["_expire", "_end_idle", "_notice_end"])
    async def test_a_task_of_one_life_that_fails_ends_this_life_as_failed(self, made: Parts, method: str) -> None:
        record, neighbour = [await made.creator.create(ASKED, LOCAL) for _ in range(2)]
        instance = made.supervisor[record.id]
        with failing(made.supervisor, method):
            made.supervisor.start(instance, getattr(made.supervisor, method)(instance))
            await instance.ended.wait()
        shown = await made.instances.get(record.id)
        assert shown.status is EnvStatus.FAILED
        assert "the gateway failed to look after it" in str(shown.reason)
        assert [*await made.engine.running()] == [neighbour.id]
        await still_serves(made)

    async def test_an_instance_that_fails_to_freeze_in_an_unexpected_way_stays_and_others_do(
        self, made: Parts
    ) -> None:
        record = await made.creator.create(ASKED, LOCAL)
        instance = made.supervisor[record.id]
        with failing(made.freezing, "_freeze") as failed:
            done = asyncio.Event()
            made.freezing._tasks.create_task(made.freezing._freeze(instance), lambda _: done.set())
            await done.wait()
        assert failed
        assert (await made.instances.get(record.id)).status is EnvStatus.RUNNING
        await still_serves(made)

    @pytest.mark.parametrize("loop", ["warm pools", "reclaim", "upkeep", "freezing"])
    async def test_a_loop_of_the_gateway_that_fails_is_started_again(
        self, tmp_path: Path, loop: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("aenv.base.supervision._FIRST_DELAY", 0.0)
        caplog.set_level(logging.ERROR)
        (tmp_path / "again").mkdir()
        again = asyncio.Event()
        part = {
            "warm pools": "aenv.control.instances.warm_pools.WarmPools",
            "reclaim": "aenv.control.instances.reclaim.Reclaim",
        }
        part |= {
            "upkeep": "aenv.control.instances.upkeep.Upkeep",
            "freezing": "aenv.control.instances.freezing.Freezing",
        }
        runs: list[object] = []

        async def run(self: object) -> None:
            runs.append(self)
            if len(runs) == 1:
                raise RuntimeError("injected")
            again.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(f"{part[loop]}.run", run)  # a bug in it
        async with composed(tmp_path / "again" / "home", make_project(tmp_path / "again")) as made:
            await again.wait()
            await still_serves(made)
        assert f"{loop} failed; it starts again" in caplog.text

    async def test_a_record_that_cannot_be_read_hides_no_other_and_does_not_keep_a_gateway_from_starting(
        self, tmp_path: Path
    ) -> None:
        home, project = tmp_path / "second", make_project(tmp_path, version="2.0.0")
        async with composed(home, project) as made:
            stored = Record(id="bad-" + "a" * 26, node=made.home.node, gateway="g", fingerprint="")
            await made.instances._ledger.begin(stored, limits={})
            put = made.instances._ledger._put(stored, {})
            await made.shared.store.write(replace(put, value={"status": "Running"}, revision=1))
        async with composed(home, project) as made:
            record = await made.creator.create(ASKED, LOCAL)
            await made.upkeep.tend()
            assert [one.id for one in await made.instances.list(Selection())] == [record.id]


async def test_what_an_instance_says_of_its_failure_can_be_said_in_a_reply() -> None:
    assert StartFailed("it said \ud800").message == "it said \\ud800"
    record = Record(id="a", node="n", gateway="g", fingerprint="")
    record.become(EnvStatus.FAILED, "\ud800" + "x" * 100_000)
    assert record.reason is not None
    assert record.reason.startswith("\\ud800x")
    assert len(record.reason) == 8192
