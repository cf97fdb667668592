"""The stores: the suite for all of them, how one is chosen, and how their versions follow each other."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest, Unavailable
from aenv.control.stores import redis as redis_module
from aenv.control.stores import sqlite as sqlite_module
from aenv.control.stores.base import Delete, Document, Put
from aenv.control.stores.opening import open_store
from aenv.control.stores.redis import RedisStore
from aenv.control.stores.sqlite import SqliteStore
from conformance.store import MakeStore, StoreConformance
from tests.redis_server import RedisServer, redis_cluster, redis_server


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as (server,):
        yield server


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Keys for this test alone: the server is shared."""
    return tmp_path.name


class TestSqlite(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return functools.partial(SqliteStore, tmp_path / "aenv.db")

    async def test_only_the_owner_can_read_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "aenv.db"
        async with SqliteStore(path) as store:
            await store.write(Put("kind", "a", {}))
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
            assert modes == {"aenv.db": 0o600, "aenv.db-shm": 0o600, "aenv.db-wal": 0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [entry.name for entry in path.parent.iterdir()] == ["aenv.db"]

    @pytest.mark.parametrize("is_old", [False, True])
    async def test_the_file_shrinks_when_records_are_removed(self, tmp_path: Path, is_old: bool) -> None:
        path = tmp_path / "aenv.db"
        async with SqliteStore(path):
            pass
        if is_old:  # as an earlier version made it
            with contextlib.closing(sqlite3.connect(path)) as db:
                db.execute("PRAGMA journal_mode = DELETE")
                db.execute("PRAGMA auto_vacuum = NONE")
                db.execute("VACUUM")
        async with SqliteStore(path) as store:
            for part in range(20):
                await store.write(
                    *(Put("kind", f"{part} {n}", {"text": "x" * 4000}) for n in range(300)), durable=False
                )
            full = path.stat().st_size + Path(f"{path}-wal").stat().st_size
            for part in range(20):
                await store.write(*(Delete("kind", f"{part} {n}") for n in range(300)), durable=False)
        assert full > 24_000_000
        assert path.stat().st_size < full / 2

    async def test_a_step_of_the_clock_neither_stretches_nor_ends_a_lease(
        self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time()
        async with make_store() as store:
            monkeypatch.setattr(time, "time", lambda: now + 86400)
            assert await store.lease("short", "one", 0.05)
            assert await store.lease("long", "one", 60)
            monkeypatch.setattr(time, "time", lambda: now - 86400)
            while not await store.lease("short", "two", 60):
                await asyncio.sleep(0.01)
            monkeypatch.setattr(time, "time", lambda: now + 2 * 86400)
            assert not await store.lease("long", "two", 60)

    async def test_leases_of_another_boot_are_over(self, tmp_path: Path, make_store: MakeStore) -> None:
        async with make_store() as store:
            assert await store.lease("sweeper", "one", 3600)
        with contextlib.closing(sqlite3.connect(tmp_path / "aenv.db", isolation_level=None)) as db:
            db.execute("UPDATE leases SET holder = 'another boot' WHERE holder <> 'one'")
        async with make_store() as store:
            assert await store.lease("sweeper", "two", 60)

    async def test_the_number_of_buckets_is_bounded(self, make_store: MakeStore) -> None:
        async with make_store() as store:
            assert (await store.spend("first", rate=0, burst=1)).wait == 0.0
            for number in range(20_000):
                await store.spend(f"bucket {number}", rate=0, burst=1)
            assert (await store.spend("first", rate=0, burst=1)).wait == 0.0  # forgotten, and so full
            assert (await store.spend("bucket 19999", rate=0, burst=1)).wait > 0


class TestRedis(StoreConformance):
    @pytest.fixture
    def make_store(self, redis: RedisServer, prefix: str) -> MakeStore:
        return functools.partial(RedisStore, redis.url, prefix)

    async def test_permits_are_shared_by_all(self, make_store: MakeStore) -> None:
        async with make_store() as one, make_store() as other:
            assert (await one.spend("b", rate=0.001, burst=1)).wait == 0.0
            assert (await other.spend("b", rate=0.001, burst=1)).wait > 0

    async def test_nothing_is_left_of_what_was_deleted(
        self, make_store: MakeStore, redis: RedisServer, prefix: str
    ) -> None:
        async with make_store() as store:
            await store.write(Put("kind", "a", {}, terms={"t": "1"}, counts={"c": 2}))
            await store.write(Delete("kind", "a"))
        assert redis.command("KEYS", f"{{{prefix}}}*") == [f"{{{prefix}}}:version".encode()]

    @pytest.mark.parametrize("wrong", ["", "a{b", "a}b", "a\0b"])
    def test_a_prefix_that_would_spread_over_a_cluster_is_refused(self, wrong: str) -> None:
        with pytest.raises(InvalidRequest, match="prefix"):
            RedisStore("redis://localhost", wrong)


@pytest.mark.slow  # all of it for a third time
class TestRedisCluster(StoreConformance):
    @pytest.fixture
    def make_store(self, cluster: RedisServer, prefix: str) -> MakeStore:
        return functools.partial(RedisStore, cluster.url, prefix)


@pytest.mark.slow
async def test_any_node_of_a_cluster_leads_to_the_one_that_keeps_the_records(tmp_path: Path) -> None:
    with redis_cluster(tmp_path, nodes=2) as nodes:
        for node in nodes:
            async with RedisStore(node.url) as store:
                await store.write(Put("kind", node.url, {}, counts={"c": 1}, terms={"t": ""}))
        async with RedisStore(nodes[0].url) as store:
            assert await store.totals("c") == [2]
            assert (await store.page("kind", "t", limit=1)).total == 2
        assert sorted(node.command("DBSIZE") > 0 for node in nodes) == [False, True]


class TestOpening:
    @pytest.mark.parametrize("url", ["", "sqlite"])
    async def test_the_default_is_a_file_in_the_home_folder(self, tmp_path: Path, url: str) -> None:
        async with open_store(url, tmp_path / "home"):
            assert (tmp_path / "home" / "aenv.db").exists()

    async def test_a_file_can_be_named(self, tmp_path: Path) -> None:
        async with open_store(f"sqlite://{tmp_path}/other.db", tmp_path / "home"):
            assert (tmp_path / "other.db").exists()
        assert not (tmp_path / "home").exists()

    async def test_a_server_can_be_named(self, tmp_path: Path, redis: RedisServer) -> None:
        async with open_store(redis.url, tmp_path / "home") as store:
            assert await store.get("kind", "a") == [None]

    @pytest.mark.parametrize(
        "url", ["sqlite://", "sqlite:///", "sqlite://rel.db", "sqlite:/x", "postgres://u:secret@h", "redis:secret"]
    )
    def test_any_other_form_is_refused_with_those_that_there_are(self, tmp_path: Path, url: str) -> None:
        with pytest.raises(InvalidRequest, match=r"sqlite:///.*redis://.*rediss://") as caught:
            open_store(url, tmp_path)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        "url",
        [
            "redis://:secret/more@host",
            "redis://:12345/secret@host:1",
            "redis://:1#secret@host",
            "redis://:secret?x@host",
            "redis://user:secret@host:port",
            "redis://:secret@host?no_such_option=1",
            "rediss://:secret@[host",
        ],
    )
    def test_a_mistake_in_the_url_is_told_without_its_secrets(self, tmp_path: Path, url: str) -> None:
        with pytest.raises(InvalidRequest, match=r"%2F") as caught:
            open_store(url, tmp_path)
        assert "secret" not in str(caught.value)
        assert "1234" not in str(caught.value)
        assert caught.value.__cause__ is None

    async def test_a_password_is_shown_nowhere(self, tmp_path: Path) -> None:
        url = "redis://user:hidden@127.0.0.1:1/0?client_name=hidden"
        async with open_store(url, tmp_path) as store:
            with pytest.raises(Unavailable, match=r"redis://127\.0\.0\.1:1/0") as caught:
                await store.get("kind", "a")
            assert "hidden" not in f"{store!r} {caught.value} {caught.value.__cause__}"

    def test_a_missing_package_is_told_with_the_command_that_brings_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "aenv.control.stores.redis")
        monkeypatch.setitem(sys.modules, "redis.asyncio", None)  # as if it were not installed
        with pytest.raises(InvalidRequest, match=r"pip install 'redis>=5.2'"):
            open_store("redis://localhost", tmp_path)

    def test_a_store_that_is_not_used_is_not_loaded(self) -> None:
        program = "import sys, aenv.control.stores.opening; print({'redis', 'sqlite3'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n"


class TestMigrations:
    """A store is `make(*steps)`, where the steps come after the real ones."""

    @pytest.fixture(params=["sqlite", "redis"])
    def make(self, request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Any:
        if request.param == "sqlite":
            steps: Any = sqlite_module.MIGRATIONS
            return lambda *more: SqliteStore(tmp_path / "aenv.db", migrations=(*steps, *map(_statement, more)))
        steps, server = redis_module.MIGRATIONS, request.getfixturevalue("redis")
        return lambda *more: RedisStore(server.url, prefix, migrations=(*steps, *map(_lua, more)))

    async def test_steps_are_taken_once_and_in_order(self, make: Any) -> None:
        async with make() as store:
            await store.write(Put("kind", "a", {"n": 1}))
        for _ in range(2):
            async with make("b", "c") as store:
                assert await store.get("kind", "a") == [Document("a", {"n": 1, "by": "bc"}, 1)]
        async with make("b", "c", "d") as store:
            assert await store.get("kind", "a") == [Document("a", {"n": 1, "by": "bcd"}, 1)]

    async def test_after_a_step_that_fails_the_ones_before_it_stay(self, make: Any) -> None:
        async with make() as store:
            await store.write(Put("kind", "a", {"n": 1}))
        with pytest.raises(Unavailable):
            async with make("b", "fail", "d") as store:
                await store.get("kind", "a")
        async with make("b", "c", "d") as store:
            assert await store.get("kind", "a") == [Document("a", {"n": 1, "by": "bcd"}, 1)]

    async def test_a_store_that_is_newer_than_the_code_is_refused(self, make: Any) -> None:
        async with make("b", "c") as store:
            await store.get("kind", "a")
        with pytest.raises(Unavailable, match=r"has version 3 and this aenv knows 2; upgrade"):
            async with make("b") as store:
                await store.get("kind", "a")

    async def test_code_that_was_there_before_the_store_changed_writes_no_more(self, make: Any) -> None:
        async with make() as old:
            await old.write(Put("kind", "a", {"n": 1}))
            async with make("b") as store:
                await store.get("kind", "a")
                with pytest.raises(Unavailable, match="version 2 and this aenv knows 1"):
                    await old.write(Put("kind", "a", {"n": 2}))
                assert await store.get("kind", "a") == [Document("a", {"n": 1, "by": "b"}, 1)]

    def test_a_process_that_dies_within_a_step_leaves_the_store_as_before_it(self, tmp_path: Path) -> None:
        program = (
            "import asyncio, os, sys\nfrom pathlib import Path\nfrom aenv.control.stores import sqlite\n"
            "def die(db):\n    db.execute('CREATE TABLE half (x)')\n    os._exit(9)\n"
            "asyncio.run(sqlite.SqliteStore(Path(sys.argv[1]), migrations=(*sqlite.MIGRATIONS, die)).__aenter__())"
        )
        path = tmp_path / "aenv.db"
        assert subprocess.run([sys.executable, "-c", program, path]).returncode == 9
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (1,)
            assert db.execute("SELECT name FROM sqlite_master WHERE name IN ('half', 'terms')").fetchall() == [
                ("terms",)
            ]
        db.close()


def _statement(letter: str) -> sqlite_module.Migration:
    """A step that appends a letter to what each document says in `by`; or one that fails when it has done so."""

    def step(db: sqlite3.Connection) -> None:
        by = "coalesce(json_extract(value, '$.by'), '') || ?"
        db.execute(f"UPDATE documents SET value = json_set(value, '$.by', {by})", (letter,))
        if letter == "fail":
            raise sqlite3.OperationalError("as asked")

    return step


def _lua(letter: str) -> str:
    """The same for Redis, where one that fails must not have begun."""
    if letter == "fail":
        return "error('as asked')"
    return f"""
        local text = redis.call('HGET', KEYS[1] .. ':documents:kind', 'a')
        if text then
            local revision, value = string.match(text, '(%d+) (.*)')
            value = cjson.decode(value)
            value.by = (value.by or '') .. '{letter}'
            redis.call('HSET', KEYS[1] .. ':documents:kind', 'a', revision .. ' ' .. cjson.encode(value))
        end
    """
