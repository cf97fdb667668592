"""The queue for room: nobody overtakes, owners take turns, and nothing is lost when somebody leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aenv.base.errors import NotFound, TooManyRequests
from aenv.control.serving.queue import Attempt, Queue
from aenv.control.stores.base import LimitReached


class Room:
    """Room for so many; who is inside is listed in the order of their coming."""

    def __init__(self, size: int, queue: Queue) -> None:
        self.size = size
        self.inside: list[str] = []
        self._queue = queue

    def enter(self, name: str, limit: str = "room") -> Attempt:
        async def attempt() -> None:
            await asyncio.sleep(0)  # as a store does
            if len(self.inside) >= self.size:
                raise LimitReached(limit, len(self.inside), self.size)
            self.inside.append(name)

        return attempt

    def grow(self) -> None:
        self.size += 1
        self._queue.freed()


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    async with Queue() as queue:
        yield queue


async def line_up(queue: Queue, room: Room, *names: str) -> list[asyncio.Task[None]]:
    """Requests that wait, in this order; the owner is a name's first letter."""
    tasks = []
    for name in names:
        before = queue.waiting
        tasks.append(asyncio.create_task(queue.admit(name[0], {"room"}, room.enter(name), 60.0)))
        while queue.waiting == before:
            await asyncio.sleep(0)
    return tasks


async def test_who_finds_room_does_not_wait(queue: Queue) -> None:
    room = Room(1, queue)
    await queue.admit("a", {"room"}, room.enter("a1"), 0.0)
    assert room.inside == ["a1"]


async def test_who_does_not_want_to_wait_is_told_the_limit_and_where_the_queue_stands(queue: Queue) -> None:
    room = Room(0, queue)
    waiting = await line_up(queue, room, "a1", "a2")
    with pytest.raises(
        TooManyRequests, match=r"room is at 0 of 0; position 3 in the queue, about \d+ s"
    ) as refused:
        await queue.admit("b", {"room"}, room.enter("b1"), 0.0)
    assert refused.value.details["queue"]["position"] == 3
    assert refused.value.details["queue"]["waiting"] == 2
    assert refused.value.retry_after > 0
    for task in waiting:
        task.cancel()


async def test_owners_take_turns_however_many_of_one_wait(queue: Queue) -> None:
    room = Room(0, queue)
    tasks = await line_up(queue, room, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
    for _ in tasks:
        room.grow()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        tasks = [task for task in tasks if not task.done()]
    assert room.inside == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_a_newcomer_does_not_get_the_turns_of_the_time_before_it_came(queue: Queue) -> None:
    room = Room(0, queue)
    tasks = await line_up(queue, room, "a1", "a2", "a3", "a4")
    for done in range(2):
        room.grow()
        await tasks[done]
    tasks += await line_up(queue, room, "b1", "b2")
    for _ in range(4):
        room.grow()
    await asyncio.gather(*tasks)
    assert room.inside == ["a1", "a2", "a3", "b1", "a4", "b2"]


async def test_nobody_overtakes_those_who_wait_for_the_same(queue: Queue) -> None:
    room = Room(0, queue)
    (first,) = await line_up(queue, room, "a1")
    room.size = 1  # there is room, and the one who waits has not been told yet
    with pytest.raises(TooManyRequests):
        await queue.admit("b", {"room"}, room.enter("b1"), 0.0)
    queue.freed()
    await first
    assert room.inside == ["a1"]


async def test_one_who_waits_for_something_else_holds_nobody_up(queue: Queue) -> None:
    full, room = Room(0, queue), Room(1, queue)
    waiting = asyncio.create_task(queue.admit("a", {"quota"}, full.enter("a1", "quota"), 60.0))
    while not queue.waiting:
        await asyncio.sleep(0)
    await queue.admit("b", {"room"}, room.enter("b1"), 0.0)
    assert room.inside == ["b1"]
    waiting.cancel()


async def test_a_wait_that_is_over_says_where_it_stood(queue: Queue) -> None:
    room = Room(0, queue)
    with pytest.raises(TooManyRequests, match="position 1 in the queue"):
        await queue.admit("a", {"room"}, room.enter("a1"), 0.01)
    assert queue.waiting == 0


async def test_an_attempt_under_way_is_finished_before_the_one_who_leaves_is_gone(queue: Queue) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    done: list[str] = []
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LimitReached("room", 0, 0)
        begun.set()
        await go.wait()
        done.append("written")

    task = asyncio.create_task(queue.admit("a", {"room"}, attempt, 60.0))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["written"]  # and so whoever undoes it knows that there is something to undo


async def test_another_error_of_an_attempt_is_the_answer_of_the_one_who_waited(queue: Queue) -> None:
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        raise LimitReached("room", 0, 0) if tries == 1 else NotFound("gone")

    with pytest.raises(NotFound, match="gone"):
        await queue.admit("a", {"room"}, attempt, 60.0)
