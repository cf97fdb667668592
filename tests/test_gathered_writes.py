"""Writes that wait for others: each is made or refused by itself, and none is acknowledged before it is made."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.base.errors import Unavailable
from aenv.control.stores.base import LimitReached, Put, Stale
from aenv.control.stores.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "store.db", timeout=0.5) as store:
        yield store


async def write(store: SqliteStore, *changes: Put) -> None:
    await store.write(*changes, durable=False, gather=True)


async def keys(store: SqliteStore, *asked: str) -> list[str]:
    return [document.key for document in await store.get("things", *asked) if document]


async def test_writes_that_come_together_are_one_transaction(store: SqliteStore, tmp_path: Path) -> None:
    commits: list[str] = []
    store._db.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else None)
    names = [f"thing-{number}" for number in range(20)]
    await asyncio.gather(*(write(store, Put("things", name, {})) for name in names))
    assert commits == ["COMMIT"]
    with sqlite3.connect(tmp_path / "store.db") as other:  # as another process sees it, once it is acknowledged
        assert other.execute("SELECT count(*) FROM documents").fetchone() == (20,)
    other.close()


async def test_one_that_is_refused_keeps_none_of_the_others_from_being_written(store: SqliteStore) -> None:
    await store.write(Put("things", "old", {}, counts={"room": 1}))
    outcomes = await asyncio.gather(
        write(store, Put("things", "first", {})),
        write(store, Put("things", "old", {}, revision=0)),
        write(store, Put("things", "too-much", {}, counts={"room": 5}, limits={"room": 3})),
        write(store, Put("things", "last", {}, counts={"room": 1})),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), Stale, LimitReached, type(None)]
    assert await keys(store, "first", "too-much", "last") == ["first", "last"]
    assert await store.totals("room") == [2]


async def test_one_that_is_given_up_before_its_turn_is_not_written(store: SqliteStore) -> None:
    given_up = asyncio.create_task(write(store, Put("things", "given-up", {})))
    kept = asyncio.create_task(write(store, Put("things", "kept", {})))
    await asyncio.sleep(0)
    given_up.cancel()
    await kept
    assert await keys(store, "given-up", "kept") == ["kept"]


async def test_all_are_told_when_the_store_cannot_be_written(store: SqliteStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes = await asyncio.gather(
        *(write(store, Put("things", str(number), {})) for number in range(3)), return_exceptions=True
    )
    other.execute("ROLLBACK")
    other.close()
    assert [type(outcome).__mro__[1] for outcome in outcomes] == [Unavailable] * 3


async def test_what_waits_is_written_when_the_store_is_closed(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.db") as store:
        waiting = asyncio.create_task(write(store, Put("things", "waiting", {})))
        await asyncio.sleep(0)
    await waiting
    async with SqliteStore(tmp_path / "store.db") as store:
        assert await keys(store, "waiting") == ["waiting"]
