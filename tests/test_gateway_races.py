"""Two things at once to one instance: whatever the order, one truth is recorded, and nothing runs unknown.

Store and engine are real. Where the order matters, one call of theirs is held until the other thing has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Conflict, NotFound, TooManyRequests, Unavailable
from aenv.base.models import CreateInstance
from aenv.control.gateway import home as homes
from aenv.control.gateway.parts import Parts, parts, shared
from aenv.control.instances.catalog import read_folders
from aenv.control.instances.selection import Selection
from aenv.control.serving.accounts import LOCAL
from aenv.control.stores.base import Delete
from aenv.engines.process import ProcessEngine
from conformance.engine import NEVER_READY, opened
from tests.gateways import ECHO, composed, gateway_settings, instance_processes, leftovers, make_project, new_id

pytestmark = pytest.mark.slow  # gateways and instances

ASKED = CreateInstance(env_name="echo", labels={"experiment": "a"})


class Held:
    """A call that waits to be let go, either before it does anything or before it returns."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.arguments: tuple[Any, ...] = ()


@contextlib.contextmanager
def held(
    owner: object,
    method: str,
    *,
    after: bool = False,
    when: Callable[..., bool] = lambda *_: True,
    error: Exception | None = None,
) -> Iterator[Held]:
    """Hold the first call of a method that `when` is about; with `error` it then fails, whatever it did."""
    original, hold = getattr(owner, method), Held()

    async def call(*arguments: Any, **options: Any) -> Any:
        if hold.reached.is_set() or not when(*arguments):
            return await original(*arguments, **options)
        result = await original(*arguments, **options) if after else None
        hold.arguments = arguments
        hold.reached.set()
        await hold.go.wait()
        if error:
            raise error
        return result if after else await original(*arguments, **options)

    setattr(owner, method, call)  # over the method of a real object, which still does the work
    try:
        yield hold
    finally:
        hold.go.set()
        setattr(owner, method, original)


def writes(status: str) -> Callable[..., bool]:
    """Of the store's writes those that record this status of an instance."""
    return lambda change, *_: change.kind == "instances" and getattr(change, "value", {}).get("status") == status


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def made(home: Path, tmp_path: Path) -> AsyncIterator[Parts]:
    async with composed(home, make_project(tmp_path)) as made:
        yield made


async def shown(made: Parts, id: str) -> tuple[str, str | None]:
    record = await made.instances.get(id)
    return str(record.status), record.reason


async def check_nothing_is_left(made: Parts, home: Path) -> None:
    """No process, no folder, no instance, and neither quotas nor metrics count anything."""
    async with asyncio.timeout(4):
        await asyncio.gather(*(instance.ended.wait() for instance in list(made.supervisor.values())))
    assert leftovers(home) == []
    assert made.supervisor == {}
    assert await made.shared.store.totals("instances", "label=experiment=a") == [0, 0]
    assert b'envName="echo",experiment="a"} 1.0' not in made.shared.metrics.text()


# Renewing


async def test_an_instance_that_is_being_deleted_is_not_renewed(made: Parts, home: Path) -> None:
    record = await made.creator.create(ASKED, LOCAL)
    with held(made.engine, "destroy") as destroying:
        deleting = asyncio.create_task(made.instances.delete(record.id))
        await destroying.reached.wait()
        with pytest.raises(Conflict, match="only one that runs can be renewed"):
            await made.instances.renew(record.id, 3600)
    await deleting
    assert await shown(made, record.id) == ("Terminated", "deleted")
    await check_nothing_is_left(made, home)


async def test_a_renewal_does_not_bring_back_what_is_deleted_while_it_is_written(made: Parts, home: Path) -> None:
    record = await made.creator.create(ASKED, LOCAL)
    with held(made.shared.store, "write", after=True) as writing, held(made.engine, "destroy") as destroying:
        renewing = asyncio.create_task(made.instances.renew(record.id, 3600))
        await writing.reached.wait()
        deleting = asyncio.create_task(made.instances.delete(record.id))
        await destroying.reached.wait()
        writing.go.set()
        with pytest.raises(Conflict, match="only one that runs can be renewed"):
            await renewing
    await deleting
    assert await shown(made, record.id) == ("Terminated", "deleted")
    await check_nothing_is_left(made, home)


@pytest.mark.parametrize("seen", ["before", "after"])
async def test_an_instance_that_is_renewed_at_the_moment_of_its_expiry_lives_on(
    home: Path, tmp_path: Path, seen: str
) -> None:
    now = 1000.0
    async with composed(home, make_project(tmp_path), clock=lambda: now) as made:
        record = await made.creator.create(ASKED, LOCAL)
        now += record.ttl + 1
        with held(made.shared.store, "get", after=seen == "before") as looking:
            made.supervisor.check(record.id)
            await looking.reached.wait()
            await made.instances.renew(record.id, 3600)
        assert await shown(made, record.id) == ("Running", None)  # the store answers in order: it has been seen
        assert made.supervisor[record.id].is_live
        now += 3601
        instance = made.supervisor[record.id]
        made.supervisor.check(record.id)
        await instance.ended.wait()
        assert await shown(made, record.id) == ("Terminated", "its time to live of 3600 s was over")


async def test_an_instance_that_is_deleted_at_the_moment_of_its_expiry_is_not_brought_back(
    home: Path, tmp_path: Path
) -> None:
    now, project = 1000.0, make_project(tmp_path)
    async with composed(home, project, clock=lambda: now) as made, composed(home, project) as other:
        record = await made.creator.create(ASKED, LOCAL)
        await other.instances.renew(record.id, 7200)
        now += record.ttl + 1
        with held(made.shared.store, "get", after=True) as looking, held(made.engine, "destroy") as destroying:
            made.supervisor.check(record.id)
            await looking.reached.wait()
            deleting = asyncio.create_task(made.instances.delete(record.id))
            await destroying.reached.wait()
            looking.go.set()
            assert await shown(other, record.id) == ("Running", None)  # the look is over
            destroying.go.set()
            await deleting
        assert await shown(other, record.id) == ("Terminated", "deleted")
        await check_nothing_is_left(made, home)


# Creating and deleting


@pytest.mark.parametrize("written", [False, True])
async def test_an_instance_that_is_deleted_while_it_is_recorded_as_running_is_gone(
    made: Parts, home: Path, written: bool
) -> None:
    id = new_id()
    with held(made.shared.store, "write", when=writes("Running"), after=written) as saving:
        creating = asyncio.create_task(made.creator.create(ASKED, LOCAL, id=id))
        await saving.reached.wait()
        await made.instances.delete(id)
    with pytest.raises(Conflict, match="has ended"):
        await creating
    await check_nothing_is_left(made, home)
    with pytest.raises(NotFound):
        await made.instances.get(id)
    assert (await made.creator.create(ASKED, LOCAL, id=id)).id == id


async def test_a_client_that_leaves_while_its_instance_is_recorded_leaves_nothing(made: Parts, home: Path) -> None:
    with held(made.shared.store, "write", when=writes("Running"), after=True) as saving:
        creating = asyncio.create_task(made.creator.create(ASKED, LOCAL))
        await saving.reached.wait()
        creating.cancel()
        await asyncio.wait({creating})
        await check_nothing_is_left(made, home)


async def test_many_deletions_at_once_all_answer_when_it_is_gone(made: Parts, home: Path) -> None:
    record = await made.creator.create(ASKED, LOCAL)
    await asyncio.gather(*(made.instances.delete(record.id) for _ in range(5)))
    await check_nothing_is_left(made, home)
    assert await shown(made, record.id) == ("Terminated", "deleted")


async def test_many_are_deleted_although_one_of_them_is_beyond_reach(home: Path, tmp_path: Path) -> None:
    project, store = make_project(tmp_path), f"sqlite:///{tmp_path / 'shared.db'}"
    async with (
        composed(home, project, store=store) as made,
        composed(tmp_path / "other", project, store=store) as other,
    ):
        away = await other.creator.create(ASKED, LOCAL)
        for _ in range(3):
            await made.creator.create(ASKED, LOCAL)
        with pytest.raises(Unavailable, match="runs on another node"):
            await made.instances.delete_all(Selection(label=("experiment", "a")))
        assert leftovers(home) == []  # when it answers, all that it can end are gone
        assert await shown(made, away.id) == ("Running", None)


async def test_many_are_deleted_although_one_of_them_vanishes_meanwhile(made: Parts, home: Path) -> None:
    for _ in range(2):
        await made.creator.create(ASKED, LOCAL)
    with held(made.shared.store, "write", when=writes("Running")) as saving:
        creating = asyncio.create_task(made.creator.create(ASKED, LOCAL))
        await saving.reached.wait()
        with held(made.shared.store, "page", after=True) as listing:
            deleting = asyncio.create_task(made.instances.delete_all(Selection(label=("experiment", "a"))))
            await listing.reached.wait()
            creating.cancel()  # undone, as if it had never been asked for
            await asyncio.wait({creating})
            await asyncio.gather(*(one.ended.wait() for one in list(made.supervisor.values()) if not one.is_live))
        assert await deleting == 3
    await check_nothing_is_left(made, home)


async def test_a_gateway_that_stops_and_keeps_instances_does_not_keep_one_that_nobody_was_told_of(
    made: Parts, home: Path
) -> None:
    kept = await made.creator.create(ASKED, LOCAL)
    with held(made.shared.store, "write", when=writes("Running"), after=True) as saving:
        creating = asyncio.create_task(made.creator.create(ASKED, LOCAL))
        await saving.reached.wait()
        await made.supervisor.close(keep=True)
    with pytest.raises(Conflict, match="has ended"):
        await creating
    assert [process.environ()["AENV_INSTANCE_ID"] for process in instance_processes(home)] == [kept.id]
    await made.engine.destroy(kept.id)


# Batches


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def one_ready_one_not(tmp_path: Path, pipe: Path) -> Path:
    """A project of which the first instance becomes ready, and all others never."""
    mark = f"os.close(os.open({str(tmp_path / 'first')!r}, os.O_CREAT | os.O_EXCL))"
    first = f"try:\n    {mark}\nexcept FileExistsError:\n"
    never = "".join(f"    {line}\n" for line in NEVER_READY.format(pipe=str(pipe)).splitlines())
    return make_project(tmp_path, code=ECHO + first + never)


async def half_ready(made: Parts, pipe: Path) -> asyncio.Task[Any]:
    """A batch of which one instance is ready and the other starts."""
    creating = asyncio.create_task(made.creator.create_many(ASKED, LOCAL, [f"echo-{c * 26}" for c in "ab"]))
    await opened(pipe)
    while all(instance.creation for instance in made.supervisor.values()):
        await asyncio.sleep(0)
    for _ in range(5):  # turns, in which those who wait for the ready one are told
        await asyncio.sleep(0)
    return creating


async def test_a_client_that_leaves_takes_its_whole_batch_along(home: Path, tmp_path: Path, pipe: Path) -> None:
    async with composed(home, one_ready_one_not(tmp_path, pipe)) as made:
        creating = await half_ready(made, pipe)
        creating.cancel()
        await asyncio.wait({creating})
        await check_nothing_is_left(made, home)


async def test_a_batch_of_which_one_is_deleted_while_it_starts_is_not_made(
    home: Path, tmp_path: Path, pipe: Path
) -> None:
    async with composed(home, one_ready_one_not(tmp_path, pipe)) as made:
        creating = await half_ready(made, pipe)
        starting = next(id for id, instance in made.supervisor.items() if instance.creation)
        await made.instances.delete(starting)
        with pytest.raises(Conflict, match="has ended"):
            await creating
        await check_nothing_is_left(made, home)


async def test_what_can_never_fit_does_not_wait_and_holds_up_nobody(home: Path, tmp_path: Path) -> None:
    big = make_project(tmp_path, "big", memory="4Gi")
    async with composed(home, make_project(tmp_path), big, max_instances=3, capacity_memory_bytes=1 << 30) as made:
        await made.creator.create(ASKED, LOCAL)
        patient = ASKED.model_copy(update={"wait": "1h"})
        with pytest.raises(TooManyRequests, match="asks for 4 of instances, limited to 3"):
            await made.creator.create_many(patient, LOCAL, [f"echo-{c * 26}" for c in "abcd"])
        with pytest.raises(TooManyRequests, match="of memory, limited to"):
            await made.creator.create(patient.model_copy(update={"env_name": "big"}), LOCAL)
        assert (await made.creator.create(ASKED, LOCAL)).status == "Running"


# A store that does not answer, or not in time


BROKEN = Unavailable("the connection broke before the reply")


@pytest.mark.parametrize("status", ["Creating", "Running"])
@pytest.mark.parametrize("written", [False, True])
async def test_a_create_that_could_not_be_recorded_leaves_nothing_and_may_be_repeated(
    made: Parts, home: Path, status: str, written: bool
) -> None:
    id = new_id()
    with held(made.shared.store, "write", when=writes(status), after=written, error=BROKEN) as writing:
        writing.go.set()
        with pytest.raises(Unavailable):
            await made.creator.create(ASKED, LOCAL, id=id)
    await check_nothing_is_left(made, home)
    async with asyncio.timeout(4):
        assert (await made.creator.create(ASKED, LOCAL, id=id)).id == id


@pytest.mark.parametrize("by", ["id", "key"])
async def test_a_create_may_be_repeated_before_the_failed_one_could_be_forgotten(
    made: Parts, home: Path, by: str
) -> None:
    what = {by: new_id()}
    with (
        held(made.shared.store, "write", when=writes("Running"), after=True, error=BROKEN) as writing,
        held(
            made.shared.store, "write", when=lambda change, *_: isinstance(change, Delete), error=BROKEN
        ) as forgetting,
    ):
        writing.go.set()
        forgetting.go.set()
        with pytest.raises(Unavailable):
            await made.creator.create(ASKED, LOCAL, **what)
    assert leftovers(home) == []
    async with asyncio.timeout(4):
        record = await made.creator.create(ASKED, LOCAL, **what)
    assert record.address
    assert [process.pid for process in instance_processes(home)] == [record.address.pid]
    assert await made.shared.store.totals("instances") == [1]


async def test_what_could_not_be_recorded_does_not_touch_the_instance_of_another_with_the_same_id(
    made: Parts, home: Path, tmp_path: Path
) -> None:
    async with composed(home, make_project(tmp_path, version="2.0.0")) as other:
        theirs = await other.creator.create(ASKED.model_copy(update={"owner": "bob"}), LOCAL)
        with held(made.shared.store, "write", error=BROKEN) as writing:
            writing.go.set()
            with pytest.raises(Unavailable):
                await made.creator.create(ASKED, LOCAL, id=theirs.id)
        assert await shown(made, theirs.id) == ("Running", None)
        assert len(instance_processes(home)) == 1


async def test_an_end_that_could_not_be_recorded_is_recorded_later_whoever_stops_waiting(made: Parts) -> None:
    records = [await made.creator.create(ASKED, LOCAL) for _ in range(2)]
    for record in records:
        with held(made.shared.store, "write", error=BROKEN) as writing:
            writing.go.set()
            with pytest.raises(Unavailable, match="has ended, but the store does not answer"):
                await made.instances.delete(record.id)
    with held(made.shared.store, "write") as writing:
        saving = asyncio.create_task(made.transitions.save_rest())
        await writing.reached.wait()
        saving.cancel()
        await asyncio.wait({saving})
    await made.transitions.save_rest()
    assert [await shown(made, record.id) for record in records] == [("Terminated", "deleted")] * 2


# Gateways that start and go on


@contextlib.asynccontextmanager
async def ended(made: Parts) -> AsyncIterator[None]:
    """Afterwards the children are waited for that a gateway of this process has left to the next."""
    assert isinstance(made.engine, ProcessEngine)
    yield
    for child in made.engine._children.values():
        await asyncio.to_thread(child.wait)


async def test_an_instance_that_was_taken_over_is_the_same_for_who_asks_again(home: Path, tmp_path: Path) -> None:
    project, id = make_project(tmp_path), new_id()
    async with composed(home, project, keep_instances=True) as made:
        first = await made.creator.create(ASKED, LOCAL, id=id)
        keyed = await made.creator.create(ASKED, LOCAL, key="k")
    async with ended(made), composed(home, project) as made:
        assert set(made.supervisor) == {id, keyed.id}
        assert (await made.creator.create(ASKED, LOCAL, id=id)).address == first.address
        assert (await made.creator.create(ASKED, LOCAL, key="k")).id == keyed.id
    assert leftovers(home) == []


async def test_a_start_that_the_store_interrupts_takes_each_instance_over_once(home: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    async with composed(home, project, keep_instances=True) as made:
        records = [await made.creator.create(ASKED, LOCAL) for _ in range(3)]
    settings = gateway_settings(home, project)
    async with (
        ended(made),
        shared(settings, read_folders([project], home)) as base,
        homes.opened(home) as own,
        parts(settings, base, own) as made,
    ):
        running, second = await made.engine.running(), records[1].id
        with held(base.store, "write", when=lambda change, *_: change.key == second, error=BROKEN) as writing:
            writing.go.set()
            with pytest.raises(Unavailable):
                await made.upkeep.take_over_all(running, set())
        begun = dict(made.supervisor)
        assert set(begun) == {records[0].id}
        await made.upkeep.take_over_all(running, set())
        assert set(made.supervisor) == {record.id for record in records}
        assert made.supervisor.items() >= begun.items()


async def test_an_engine_that_cannot_tell_when_an_instance_ends_does_not_end_the_gateway(made: Parts) -> None:
    with held(made.engine, "ended", error=OSError("too many open files")) as watching:
        watching.go.set()
        record = await made.creator.create(ASKED, LOCAL)
        await watching.reached.wait()
    assert (await made.creator.create(ASKED, LOCAL)).status == "Running"
    assert await shown(made, record.id) == ("Running", None)
    await made.instances.delete(record.id)
    assert await shown(made, record.id) == ("Terminated", "deleted")


async def test_upkeep_that_fails_ends_neither_itself_nor_the_gateway(
    made: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = asyncio.Event()

    async def broken() -> None:
        rounds.set()
        raise OSError("a folder that cannot be removed")

    monkeypatch.setattr(made.upkeep, "tend", broken)  # what may fail there is other people's files
    running = asyncio.create_task(made.upkeep.run())
    await rounds.wait()
    await asyncio.sleep(0)
    assert not running.done()
    assert "upkeep failed" in caplog.text
    running.cancel()
    await asyncio.wait({running})


async def test_an_instance_is_renewed_while_another_gateway_is_asked_for_the_same_one(
    made: Parts, home: Path, tmp_path: Path
) -> None:
    id = new_id()
    record = await made.creator.create(ASKED, LOCAL, id=id)
    async with composed(home, tmp_path / "echo-1.0.0") as other:
        with held(other.shared.store, "write") as asking:
            repeated = asyncio.create_task(other.creator.create(ASKED, LOCAL, id=id))
            await asking.reached.wait()
            await other.instances.renew(id, 7200)
        assert (await repeated).address == record.address
        assert (await shown(other, id), len(instance_processes(home))) == (("Running", None), 1)


async def test_an_instance_is_deleted_while_another_gateway_is_asked_for_the_same_one(
    made: Parts, home: Path, tmp_path: Path
) -> None:
    record = await made.creator.create(ASKED, LOCAL)
    async with composed(home, tmp_path / "echo-1.0.0") as other:
        with held(other.shared.store, "write") as asking:
            repeated = asyncio.create_task(other.creator.create(ASKED, LOCAL, id=record.id))
            await asking.reached.wait()
            deleting = asyncio.create_task(other.instances.delete(record.id))
            await asyncio.sleep(0)
        await deleting
        with pytest.raises(Conflict, match="has ended"):
            await repeated
        assert await shown(other, record.id) == ("Terminated", "deleted")
        await check_nothing_is_left(made, home)
