"""What every store must do. A test module subclasses `StoreConformance` and says how its store is made.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return functools.partial(MyStore, tmp_path)      # other processes get it by pickle

Each call makes a new object over the same data, which are empty when a test begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest
from aenv.control.stores.base import Delete, Document, LimitReached, Page, Put, Stale
from conformance.store_model import Model
from conformance.store_writers import KIND, increment, pairs, take, writing

MakeStore = Callable[[], Any]
# By code point: UTF-16 would put the last before the one in front of it, a locale would mix the letters.
SORTED = ["", "\x01", " ", "A", "Z", "Z\x01", "Za", "a", "z", "\x7f", "é", "漢", "\uffff", "\U0001f600"]


async def keys(store: Any, *terms: str, limit: int = 3, **options: Any) -> list[str]:
    """The keys in the lists, page by page."""
    found: list[str] = []
    page: Page = await store.page(KIND, *terms, limit=limit, **options)
    found += [document.key for document in page.documents]
    while page.next is not None:
        assert len(page.documents) == limit
        page = await store.page(KIND, *terms, limit=limit, after=page.next, reverse=options.get("reverse", False))
        found += [document.key for document in page.documents]
    return found


class StoreConformance:
    """The suite. Subclasses give `make_store`."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        raise NotImplementedError("say how to make a store; each call gives a new object over the same data")

    @pytest.fixture
    async def store(self, make_store: MakeStore) -> AsyncIterator[Any]:
        async with make_store() as store:
            yield store

    # Documents

    async def test_what_was_written_is_read_back_as_it_was(self, store: Any, make_store: MakeStore) -> None:
        value = {
            "empty": {"list": [], "object": {}, "text": "", "nothing": None},
            "numbers": [0, -1, 2**53 + 1, 10**30, 0.1, 1e300, True],
            "texts": ["\0", '"\\/', "漢\U0001f600", "half \ud800", "\u2028"],
            "漢": {"nested": [[[]]]},
        }
        await store.write(Put(KIND, "a", value))
        assert await store.get(KIND, "a") == [Document("a", value, 1)]
        async with make_store() as other:
            assert await other.get(KIND, "a") == [Document("a", value, 1)]

    async def test_documents_come_in_the_order_of_their_keys(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {"n": 1}), Put(KIND, "b", {"n": 2}), Put("other", "c", {"n": 3}))
        found = await store.get(KIND, "b", "c", "a", "b")
        assert [document and document.value["n"] for document in found] == [2, None, 1, 2]
        assert await store.get(KIND) == []

    async def test_a_kind_and_a_key_that_read_alike_are_apart(self, store: Any) -> None:
        await store.write(Put("a:b", "c", {}, terms={"t": ""}), Put("a", "b:c", {}, terms={"b:t": ""}))
        assert await store.get("a:b", "b:c") == [None]
        assert (await store.page("a", "t", limit=1)).total == 0
        assert (await store.page("a:b", "t", limit=1)).total == 1

    async def test_every_write_replaces_the_document_and_counts_in_its_revision(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {"old": 1}))
        await store.write(Put(KIND, "a", {"new": 1}))
        assert await store.get(KIND, "a") == [Document("a", {"new": 1}, 2)]

    async def test_a_demanded_revision_must_be_the_current_one(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {"n": 1}, revision=0))
        await store.write(Put(KIND, "a", {"n": 2}, revision=1))
        for revision in (0, 1, 3):
            with pytest.raises(Stale) as caught:
                await store.write(Put(KIND, "a", {"n": 9}, revision=revision))
            assert (caught.value.kind, caught.value.key) == (KIND, "a")
        with pytest.raises(Stale):
            await store.write(Put(KIND, "missing", {}, revision=1))
        assert await store.get(KIND, "a", "missing") == [Document("a", {"n": 2}, 2), None]

    async def test_a_refused_write_changes_nothing_at_all(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {"n": 1}, terms={"list": "1"}, counts={"c": 1}))
        changed = Put(KIND, "a", {"n": 2}, terms={"list": "2", "more": ""}, counts={"c": 5, "d": 1})
        stale, full = Put(KIND, "b", {}, revision=7), Put(KIND, "b", {}, counts={"c": 1}, limits={"c": 5})
        for refused in (stale, full, Delete(KIND, "b", revision=1)):
            with pytest.raises((Stale, LimitReached)):
                await store.write(changed, Put(KIND, "new", {}, terms={"list": "3"}), refused)
        assert await store.get(KIND, "a", "b", "new") == [Document("a", {"n": 1}, 1), None, None]
        assert await keys(store, "list", "more") == ["a"]
        assert await store.totals("c", "d") == [1, 0]

    async def test_a_deleted_document_is_gone_with_its_terms_and_counts(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {}, terms={"list": "1"}, counts={"c": 3}))
        await store.write(Put(KIND, "b", {}, terms={"list": "2"}, counts={"c": 4}))
        await store.write(Delete(KIND, "a"))
        assert await store.get(KIND, "a") == [None]
        assert await keys(store, "list") == ["b"]
        assert await store.totals("c") == [4]
        await store.write(Put(KIND, "a", {}, revision=0))
        assert await store.get(KIND, "a") == [Document("a", {}, 1)]

    async def test_deleting_what_is_gone_is_fine_unless_a_revision_is_demanded(self, store: Any) -> None:
        await store.write(Delete(KIND, "a"))
        await store.write(Delete(KIND, "a", revision=0))
        with pytest.raises(Stale):
            await store.write(Delete(KIND, "a", revision=1))
        await store.write(Put(KIND, "a", {}))
        with pytest.raises(Stale):
            await store.write(Delete(KIND, "a", revision=0))
        await store.write(Delete(KIND, "a", revision=1))
        assert await store.get(KIND, "a") == [None]

    async def test_terms_and_counts_replace_those_of_before(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {}, terms={"x": "1", "y": "1"}, counts={"c": 2, "d": 2}))
        await store.write(Put(KIND, "a", {}, terms={"y": "2", "z": "1"}, counts={"d": 1, "e": 0}))
        assert [await keys(store, term) for term in ("x", "y", "z")] == [[], ["a"], ["a"]]
        assert await store.totals("c", "d", "e", "never") == [0, 1, 0, 0]

    async def test_a_limit_is_never_passed_and_says_how_far_it_was(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {}, counts={"c": 3}, limits={"c": 5}))
        with pytest.raises(LimitReached) as caught:
            await store.write(Put(KIND, "b", {}, counts={"c": 3}, limits={"c": 5}))
        assert (caught.value.name, caught.value.total, caught.value.limit) == ("c", 3, 5)
        await store.write(Put(KIND, "b", {}, counts={"c": 2}, limits={"c": 5}))
        assert await store.totals("c") == [5]

    async def test_a_document_is_measured_against_a_limit_without_what_it_added_before(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {}, counts={"c": 5}, limits={"c": 5}))
        await store.write(Put(KIND, "a", {}, counts={"c": 4}, limits={"c": 5}))
        await store.write(Delete(KIND, "a"), Put(KIND, "b", {}, counts={"c": 5}, limits={"c": 5}))
        assert await store.totals("c") == [5]

    async def test_a_limit_also_holds_for_what_others_added(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {}, counts={"c": 5}))
        with pytest.raises(LimitReached):
            await store.write(Put(KIND, "b", {}, limits={"c": 4}))
        await store.write(Put(KIND, "b", {}, limits={"c": 5, "unknown": 0}))

    async def test_no_total_grows_beyond_what_can_be_counted(self, store: Any) -> None:
        await store.write(Put(KIND, "a", {}, counts={"c": 2**53 - 2}))
        with pytest.raises(LimitReached):
            await store.write(Put(KIND, "b", {}, counts={"c": 2}, limits={"d": 1}))
        await store.write(Put(KIND, "b", {}, counts={"c": 1}, limits={"c": 2**70}))
        assert await store.totals("c") == [2**53 - 1]
        await store.write(Delete(KIND, "a"))
        assert await store.totals("c") == [1]

    async def test_what_no_store_could_keep_is_refused(self, store: Any) -> None:
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"in": deep}
        for change in (
            Put(KIND, "nul\0", {}),
            Put(KIND, "half \ud800", {}),
            Put(KIND, "a", {}, terms={"list": "\0"}),
            Put(KIND, "a", {}, counts={"c": -1}),
            Put(KIND, "a", {}, counts={"c": 2**53}),
            Put(KIND, "a", {"n": float("nan")}),
            Put(KIND, "a", deep),
        ):
            with pytest.raises(InvalidRequest):
                await store.write(change)
        with pytest.raises(InvalidRequest, match="each document once"):
            await store.write(Put(KIND, "a", {}), Delete(KIND, "a"))
        assert await store.get(KIND, "a") == [None]

    # Lists

    async def test_a_list_is_sorted_by_place_then_key_whatever_the_characters(self, store: Any) -> None:
        shuffled = random.Random(1).sample(SORTED, len(SORTED))
        await store.write(*(Put(KIND, f"{place}!", {}, terms={"t": place}) for place in shuffled))
        await store.write(*(Put(KIND, f"one {key}", {}, terms={"u": "place"}) for key in shuffled))
        assert await keys(store, "t") == [f"{place}!" for place in SORTED]
        assert await keys(store, "t", reverse=True) == [f"{place}!" for place in reversed(SORTED)]
        assert await keys(store, "u") == [f"one {key}" for key in SORTED]
        assert await keys(store, "t", "t", "t") == [f"{place}!" for place in SORTED]

    async def test_pages_tell_their_documents_the_total_and_whether_more_follows(self, store: Any) -> None:
        await store.write(*(Put(KIND, str(n), {"n": n}, terms={"t": str(n)}) for n in range(6)))
        first = await store.page(KIND, "t", limit=3)
        assert first.documents == [Document(str(n), {"n": n}, 1) for n in range(3)]
        assert first.total == 6
        second = await store.page(KIND, "t", limit=3, after=first.next)
        assert ([document.key for document in second.documents], second.total) == (["3", "4", "5"], 6)
        assert second.next is None
        assert await store.page(KIND, "t", limit=0) == Page([], 6, None)
        assert await store.page(KIND, "nobody's", limit=3) == Page([], 0, None)
        assert await store.page(KIND, limit=3) == Page([], 0, None)

    async def test_an_offset_skips_from_wherever_the_page_begins(self, store: Any) -> None:
        await store.write(*(Put(KIND, str(n), {}, terms={"t": "", "u": ""}) for n in range(8)))
        for terms in (("t",), ("t", "u")):
            assert await keys(store, *terms, offset=5) == ["5", "6", "7"]
            assert await keys(store, *terms, offset=5, reverse=True) == ["2", "1", "0"]
            assert await keys(store, *terms, offset=8) == []
            first = await store.page(KIND, *terms, limit=2)
            assert await keys(store, *terms, offset=2, after=first.next) == ["4", "5", "6", "7"]

    async def test_several_lists_are_one_list_with_each_document_once(self, store: Any) -> None:
        await store.write(
            Put(KIND, "both", {}, terms={"x": "9", "y": "1"}),
            Put(KIND, "left", {}, terms={"x": "5"}),
            Put(KIND, "right", {}, terms={"y": "7"}),
            Put(KIND, "neither", {}, terms={"z": "0"}),
        )
        assert await keys(store, "x", "y", limit=1) == ["left", "right", "both"]
        assert await keys(store, "y", "x", limit=1) == ["both", "left", "right"]
        assert await keys(store, "x", "nobody's", "y", reverse=True) == ["both", "right", "left"]
        assert [(await store.page(KIND, *terms, limit=1)).total for terms in ("xy", "yx", "xyz")] == [3, 3, 4]

    async def test_paging_through_long_lists_shows_everything_once_and_ends(self, store: Any) -> None:
        expected = [f"{n:04}" for n in range(1000)]
        for start in range(0, 1000, 250):
            puts = (
                Put(KIND, key, {}, terms={"t": key, "odd": key} if int(key) % 2 else {"t": key})
                for key in expected[start : start + 250]
            )
            await store.write(*puts, durable=False)
        assert await keys(store, "t", limit=100) == expected
        assert await keys(store, "odd", "t", limit=333, reverse=True) == expected[::-1]

    async def test_paging_through_a_list_that_changes_ends_and_repeats_nothing(self, store: Any) -> None:
        stay = [f"{n:03}" for n in range(0, 200, 2)]
        await store.write(*(Put(KIND, key, {}, terms={"t": key}) for key in stay))
        seen: list[str] = []
        after = None
        while True:
            page = await store.page(KIND, "t", limit=7, after=after)
            seen += [document.key for document in page.documents]
            if page.next is None:
                break
            after = page.next
            at = int(seen[-1])
            # Behind, where nothing is read again, one comes and the last one goes; ahead, one comes and one goes.
            await store.write(
                Put(KIND, f"{at - 1:03}", {}, terms={"t": f"{at - 1:03}"}),
                Delete(KIND, seen[-1]),
                Put(KIND, f"{at + 1:03}", {}, terms={"t": f"{at + 1:03}"}),
                Delete(KIND, f"{at + 5:03}"),
            )
        assert len(seen) == len(set(seen))
        assert seen == sorted(seen)
        assert seen[-1] in (stay[-1], "199")

    @pytest.mark.parametrize("after", ["", "garbage", "AAAA", "Zm9v", "*", "漢", "//8="])
    async def test_a_cursor_that_no_page_gave_is_refused(self, store: Any, after: str) -> None:
        with pytest.raises(InvalidRequest, match="cursor"):
            await store.page(KIND, "t", limit=1, after=after)

    @pytest.mark.parametrize("window", [{"limit": -1}, {"limit": 10**30}, {"limit": 1, "offset": -1}])
    async def test_an_impossible_part_of_a_list_is_refused(self, store: Any, window: dict[str, int]) -> None:
        with pytest.raises(InvalidRequest, match="must be 0 to"):
            await store.page(KIND, "t", **window)

    @pytest.mark.parametrize("seed", range(4))
    async def test_whatever_is_done_the_store_agrees_with_a_simple_model(self, store: Any, seed: int) -> None:
        model, chance = Model(), random.Random(seed)
        for _ in range(80):
            changes = model.some_changes(chance)
            expected = model.outcome(changes)
            if expected is None:
                await store.write(*changes, durable=False)
            else:
                with pytest.raises(type(expected), match=f"^{expected}$"):
                    await store.write(*changes, durable=False)
            await model.compare(store, chance)

    # Several at once

    async def test_tasks_that_write_with_the_revision_they_read_lose_nothing(self, store: Any) -> None:
        await asyncio.gather(*(increment(store, 5) for _ in range(8)))
        assert await store.get(KIND, "counter") == [Document("counter", {"n": 40}, 40)]

    @pytest.mark.slow  # processes take their time to start
    async def test_processes_that_write_with_the_revision_they_read_lose_nothing(
        self, store: Any, make_store: MakeStore
    ) -> None:
        async with contextlib.AsyncExitStack() as stack:
            writers = [await stack.enter_async_context(writing(make_store, increment, 30)) for _ in range(3)]
            for writer in writers:
                writer.go()
            for writer in writers:
                await writer.rest()
        assert await store.get(KIND, "counter") == [Document("counter", {"n": 90}, 90)]

    @pytest.mark.slow  # processes take their time to start
    async def test_processes_that_race_for_a_limit_reach_it_and_never_pass_it(
        self, store: Any, make_store: MakeStore
    ) -> None:
        async with contextlib.AsyncExitStack() as stack:
            writers = [
                await stack.enter_async_context(writing(make_store, take, name, 20, 30))
                for name in ("a", "b", "c")
            ]
            for writer in writers:
                writer.go()
            taken = [key for writer in writers for key in await writer.rest()]
        assert len(taken) == 30
        assert await store.totals("taken") == [30]
        assert None not in await store.get(KIND, *taken)
        await store.write(Delete(KIND, taken[0]))
        await store.write(Put(KIND, "late", {}, counts={"taken": 1}, limits={"taken": 30}))

    async def test_a_killed_writer_leaves_all_it_was_promised_and_nothing_by_halves(
        self, store: Any, make_store: MakeStore
    ) -> None:
        async with writing(make_store, pairs, "p") as writer:
            writer.go()
            for _ in range(30):
                promised = await writer.line()
            writer.process.kill()
            promised = (await writer.rest() or [promised])[-1]
        sides = [await keys(store, side, limit=1000) for side in ("left", "right")]
        numbers = [sorted(int(key.rpartition("-")[2]) for key in side) for side in sides]
        assert numbers[0] == numbers[1]
        assert set(range(int(promised) + 1)) <= set(numbers[0])
        await store.write(Put(KIND, "after", {}))

    @pytest.mark.slow  # processes take their time to start
    async def test_processes_that_open_a_new_store_at_once_all_succeed(self, make_store: MakeStore) -> None:
        async with contextlib.AsyncExitStack() as stack:
            starting = [stack.enter_async_context(writing(make_store, take, str(n), 1, 9)) for n in range(4)]
            writers = await asyncio.gather(*starting)
            for writer in writers:
                writer.go()
            assert [await writer.rest() for writer in writers] == [[f"{n}-0"] for n in range(4)]

    async def test_a_cancelled_caller_does_no_harm(self, store: Any) -> None:
        """Wherever the cancellation hits: later answers are those to later questions, and writes are whole."""
        for turns in range(40):
            left, right = (Put(KIND, f"{side}-{turns}", {"n": turns}) for side in ("left", "right"))
            writing = asyncio.create_task(store.write(left, right, durable=False))
            reading = asyncio.create_task(store.totals("anything"))
            for _ in range(turns):
                await asyncio.sleep(0)
            writing.cancel()
            reading.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            found = await store.get(KIND, left.key, right.key)
            assert [document and document.value["n"] for document in found] in ([turns, turns], [None, None])
        await store.write(Put(KIND, "after", {}))

    # Leases and permits

    async def test_a_lease_has_one_holder_who_may_keep_it(self, store: Any, make_store: MakeStore) -> None:
        async with make_store() as other:
            assert await store.lease("sweeper", "one", 60)
            assert not await other.lease("sweeper", "two", 60)
            assert await store.lease("sweeper", "one", 60)
            assert await other.lease("another", "two", 60)

    async def test_a_lease_can_be_given_up_by_its_holder_alone(self, store: Any, make_store: MakeStore) -> None:
        async with make_store() as other:
            assert await store.lease("sweeper", "one", 60)
            assert not await other.lease("sweeper", "two", 0)
            assert not await other.lease("sweeper", "two", 60)
            assert await store.lease("sweeper", "one", 0)
            assert await other.lease("sweeper", "two", 60)

    async def test_a_lease_that_is_not_kept_ends(self, store: Any, make_store: MakeStore) -> None:
        async with make_store() as other:
            assert await store.lease("sweeper", "one", 0.05)
            while not await other.lease("sweeper", "two", 60):
                pass
            assert not await store.lease("sweeper", "one", 60)

    async def test_of_many_who_ask_at_once_one_gets_the_lease(self, store: Any) -> None:
        assert sum(await asyncio.gather(*(store.lease("sweeper", str(n), 60) for n in range(20)))) == 1

    async def test_a_bucket_gives_its_permits_and_then_the_time_to_wait(self, store: Any) -> None:
        answers = [await store.spend("b", rate=0.001, burst=3) for _ in range(4)]
        assert [(answer.remaining, answer.wait > 0) for answer in answers] == [
            (2, False),
            (1, False),
            (0, False),
            (0, True),
        ]
        assert answers[3].wait <= 1000
        assert (await store.spend("another", rate=0.001, burst=1)).wait == 0.0

    async def test_a_bucket_fills_again_one_by_one(self, store: Any) -> None:
        while not (await store.spend("b", rate=50, burst=100)).wait:
            pass
        while (answer := await store.spend("b", rate=50, burst=100)).wait:
            pass
        assert answer.remaining < 99

    async def test_a_bucket_that_never_fills_says_so(self, store: Any) -> None:
        assert (await store.spend("b", rate=0, burst=1)).wait == 0.0
        assert (await store.spend("b", rate=0, burst=1)).wait == float("inf")
        assert (await store.spend("none", rate=5, burst=0)).wait == float("inf")

    async def test_many_who_spend_at_once_get_no_more_than_there_is(self, store: Any) -> None:
        answers = await asyncio.gather(*(store.spend("b", rate=0.001, burst=20) for _ in range(50)))
        assert sum(answer.wait == 0.0 for answer in answers) == 20
