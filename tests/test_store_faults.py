"""What a store says, and what it keeps, when that which it stands on fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import Unavailable
from aenv.control.stores import store_timeouts
from aenv.control.stores.base import Delete, Document, Put
from aenv.control.stores.redis import RedisStore
from aenv.control.stores.sqlite import SqliteStore
from tests.redis_server import RedisServer, redis_cluster, redis_server

KIND = "thing"
BIG = {"text": "x" * 20_000}
WRITERS = 5


def pair(number: int, value: dict[str, Any] = BIG) -> tuple[Put, Put]:
    """Two documents that must be there together."""
    return (
        Put(KIND, f"left-{number}", value, terms={"left": ""}, counts={"pairs": 1}),
        Put(KIND, f"right-{number}", value, terms={"right": ""}, counts={"pairs": 1}),
    )


async def whole_pairs(store: Any) -> set[int]:
    """The pairs that are there; none by halves, and all of them counted."""
    sides = [await store.page(KIND, side, limit=100_000) for side in ("left", "right")]
    left, right = ({int(found.key.partition("-")[2]) for found in side.documents} for side in sides)
    assert left == right
    assert [side.total for side in sides] == [len(left), len(left)]
    assert await store.totals("pairs") == [2 * len(left)]
    return left


async def write_until_it_fails(store: Any) -> tuple[int, Unavailable]:
    """How many pairs there was room for, and what was said then."""
    for number in range(1000):
        try:
            await store.write(*pair(number))
        except Unavailable as error:
            return number, error
    raise AssertionError("there was room for everything")


class TestSqlite:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        """A file system of 1 MiB."""
        folder = tmp_path / "disk"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("may not mount a file system; a limit on the file's size is tested instead")
        try:
            yield folder
        finally:
            subprocess.run(["umount", str(folder)], check=True)

    async def test_a_full_disk_refuses_writes_whole_and_serves_again_when_there_is_room(self, disk: Path) -> None:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 300_000)
        async with SqliteStore(disk / "aenv.db") as store:
            written, error = await write_until_it_fails(store)
            assert written > 0
            assert "no space left" in error.message
            assert error.retry_after > 0
            assert await whole_pairs(store) == set(range(written))
            ballast.unlink()
            await store.write(*pair(written))
            assert await whole_pairs(store) == set(range(written + 1))

    async def test_a_disk_that_becomes_read_only_refuses_writes_and_is_still_read(self, disk: Path) -> None:
        async with SqliteStore(disk / "aenv.db") as store:
            await store.write(*pair(0))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(Unavailable, match=r"aenv\.db"):
            async with SqliteStore(disk / "aenv.db") as store:
                await store.write(*pair(1))
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        async with SqliteStore(disk / "aenv.db") as store:
            assert await whole_pairs(store) == {0}

    @pytest.mark.slow
    def test_a_file_that_may_not_grow_refuses_writes_whole_and_serves_again_when_it_may(
        self, tmp_path: Path
    ) -> None:
        program = f"""
import asyncio, resource, signal, sys
from pathlib import Path
from aenv.control.stores.sqlite import SqliteStore
from tests.test_store_faults import pair, whole_pairs, write_until_it_fails

async def main():
    async with SqliteStore(Path({str(tmp_path / "aenv.db")!r})) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        written, error = await write_until_it_fails(store)
        assert await whole_pairs(store) == set(range(written)), written
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await store.write(*pair(written))
        assert await whole_pairs(store) == set(range(written + 1))
        print(written)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""
        root = Path(__file__).parent.parent
        done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 0

    async def test_a_file_that_another_program_locks_is_unavailable_until_it_lets_go(self, tmp_path: Path) -> None:
        async with SqliteStore(tmp_path / "aenv.db", timeout=0.05) as store:
            await store.write(*pair(0))
            other = sqlite3.connect(tmp_path / "aenv.db", isolation_level=None)
            with contextlib.closing(other):
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(Unavailable, match=r"locked by another process for 0\.05 s"):
                    await store.write(*pair(1))
                assert await whole_pairs(store) == {0}
                other.execute("ROLLBACK")
            await store.write(*pair(1))
            assert await whole_pairs(store) == {0, 1}

    async def test_those_who_wait_for_the_same_lock_wait_at_the_same_time(self, tmp_path: Path) -> None:
        async with SqliteStore(tmp_path / "aenv.db", timeout=4) as store:
            other = sqlite3.connect(tmp_path / "aenv.db", isolation_level=None)
            with contextlib.closing(other):
                other.execute("BEGIN IMMEDIATE")
                # One after the other they would wait for longer than a test may take.
                writes = (store.write(*pair(number)) for number in range(10))
                outcomes = await asyncio.gather(*writes, return_exceptions=True)
                assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
                other.execute("ROLLBACK")

    async def test_one_request_waits_no_longer_than_its_patience_for_all_it_asks(self, tmp_path: Path) -> None:
        async with SqliteStore(tmp_path / "aenv.db", timeout=20) as store:
            other = sqlite3.connect(tmp_path / "aenv.db", isolation_level=None)
            with contextlib.closing(other):
                other.execute("BEGIN IMMEDIATE")
                with store_timeouts.at_most(0.5):
                    for number in range(10):
                        with pytest.raises(Unavailable):
                            await store.write(*pair(number))
                    assert await whole_pairs(store) == set()  # what need not wait is answered
                other.execute("ROLLBACK")
            await store.write(*pair(0))

    async def test_whoever_waits_for_another_program_holds_up_nobody_else(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        async with SqliteStore(path, timeout=60) as store:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                writing = asyncio.create_task(store.write(*pair(1), durable=False))
                await asyncio.wait({writing}, timeout=0.05)
                assert not writing.done()  # and yet this test goes on
                other.execute("ROLLBACK")
            await writing
            assert await whole_pairs(store) == {1}

    async def test_who_gives_up_a_write_that_waits_spoils_none_that_comes_after_it(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        async with SqliteStore(path, timeout=60) as store:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                writing = [asyncio.create_task(store.write(*pair(number), durable=False)) for number in range(3)]
                await asyncio.wait(writing, timeout=0.05)
                writing[-1].cancel()
                last = asyncio.create_task(store.write(*pair(3), durable=False))
                await asyncio.wait({last}, timeout=0.05)
                other.execute("ROLLBACK")
            await asyncio.gather(*writing, last, return_exceptions=True)
            assert {0, 1, 3} <= await whole_pairs(store)

    async def test_the_log_of_writes_does_not_grow_without_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("aenv.control.stores.sqlite._WRITES", 10)
        path = tmp_path / "store.db"
        async with SqliteStore(path) as store:
            for _ in range(400):
                await store.write(*pair(1), durable=False)
            written = 400 * 2 * len(BIG["text"])
            assert Path(f"{path}-wal").stat().st_size < written / 4

    async def test_a_file_that_is_none_of_sqlite_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "aenv.db"
        path.write_text("not a database, but precious" * 100)
        with pytest.raises(Unavailable, match=r"aenv\.db.*damaged or no SQLite file.*backup"):
            async with SqliteStore(path):
                pass
        assert path.read_text() == "not a database, but precious" * 100

    async def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "aenv.db"
        async with SqliteStore(path) as store:
            for number in range(20):
                await store.write(*pair(number), durable=False)
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (path.stat().st_size - 4096))
        with pytest.raises(Unavailable, match=r"aenv\.db.*damaged"):
            async with SqliteStore(path) as store:
                await store.get(KIND, "left-1")

    async def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(Unavailable, match=r"file/aenv\.db"):
            async with SqliteStore(tmp_path / "file" / "aenv.db"):
                pass


class TestRedis:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[RedisServer]:
        with redis_server(tmp_path) as server:
            yield server

    @pytest.fixture
    async def store(self, server: RedisServer) -> AsyncIterator[RedisStore]:
        async with RedisStore(server.url) as store:
            yield store

    async def test_a_store_that_was_opened_without_a_server_works_when_there_is_one(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        server.stop()
        for _ in range(2):
            with pytest.raises(Unavailable, match=f"redis://127.0.0.1:{server.port}/0") as caught:
                await store.write(*pair(0))
            assert caught.value.retry_after > 0
        server.start()
        await store.write(*pair(0))
        assert await whole_pairs(store) == {0}

    @pytest.mark.parametrize("kind", ["server", pytest.param("cluster", marks=pytest.mark.slow)])
    async def test_a_server_that_is_killed_among_writes_loses_none_that_it_confirmed(
        self, tmp_path: Path, kind: str
    ) -> None:
        with contextlib.ExitStack() as stack:
            (tmp_path / "data").mkdir()
            if kind == "server":
                server = stack.enter_context(redis_server(tmp_path / "data"))
            else:
                (server,) = stack.enter_context(redis_cluster(tmp_path / "data"))
            async with RedisStore(server.url) as store:
                confirmed = await self._killed_among_writes(server, store)
                for _ in range(2 * WRITERS):  # longer than any of its connections hopes
                    with pytest.raises(Unavailable):
                        await store.totals("pairs")
                server.start()
                if kind == "cluster":
                    assert server.logs("Cluster state changed: ok")
                assert confirmed <= await whole_pairs(store)
                await store.write(*pair(100_000))

    async def _killed_among_writes(self, server: RedisServer, store: RedisStore) -> set[int]:
        """The pairs that were confirmed before the server was gone, written by several at once."""
        confirmed: set[int] = set()
        enough = asyncio.Event()

        async def write_on(start: int) -> None:
            for number in range(start, start + 10_000):
                await store.write(*pair(number, {}))
                confirmed.add(number)
                if len(confirmed) >= 100:
                    enough.set()

        writers = [asyncio.create_task(write_on(start)) for start in range(0, WRITERS * 10_000, 10_000)]
        await enough.wait()
        server.kill()
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        return confirmed

    async def test_a_server_that_was_restarted_is_found_again_by_the_next_call(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        await asyncio.gather(*(store.write(*pair(number)) for number in range(10)))
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await store.write(*pair(10))
        assert await whole_pairs(store) == set(range(11))

    async def test_a_server_that_does_not_answer_is_unavailable_after_the_time_limit(
        self, server: RedisServer
    ) -> None:
        async with RedisStore(server.url, timeout=0.1) as store:
            await store.write(Put(KIND, "a", {"n": 1}))
            with server.paused():
                questions = (store.get(KIND, "a"), store.totals("c"), store.write(Put(KIND, "b", {})))
                for outcome in await asyncio.gather(*questions, return_exceptions=True):
                    assert isinstance(outcome, Unavailable)
                    assert "did not answer within 0.1 s" in outcome.message
        async with RedisStore(server.url) as patient:
            assert await patient.get(KIND, "a", "c") == [Document("a", {"n": 1}, 1), None]
            assert await patient.totals("x", "y", "z") == [0, 0, 0]

    async def test_late_answers_reach_nobody(self, server: RedisServer, store: RedisStore) -> None:
        """A question that was given up must not leave its answer for the next one."""
        await store.write(*(Put(KIND, str(n), {"n": n}) for n in range(50)))
        with server.paused():
            asked = [asyncio.create_task(store.get(KIND, str(n))) for n in range(20)]
            await asyncio.sleep(0)
            for _ in range(50):  # turns, in which they are sent
                await asyncio.sleep(0)
            for question in asked:
                question.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        answers = await asyncio.gather(*(store.get(KIND, str(n)) for n in range(50)))
        assert [answer[0] and answer[0].value["n"] for answer in answers] == list(range(50))

    async def test_a_write_whose_answer_is_lost_is_not_sent_twice(self, server: RedisServer) -> None:
        async with _cutting_proxy(server.port, b"documents") as port, RedisStore(server.url) as store:
            await store.write(Put(KIND, "other", {}))  # so that the server knows the script
            async with RedisStore(f"redis://127.0.0.1:{port}") as cut_off:
                assert await cut_off.totals("c") == [0]
                with pytest.raises(Unavailable):
                    await cut_off.write(Put(KIND, "a", {}))
            assert await store.get(KIND, "a") == [Document("a", {}, 1)]

    async def test_a_server_without_memory_refuses_writes_whole_and_serves_again_with_more(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        await store.write(*pair(0))
        server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(Unavailable, match="out of memory; raise its maxmemory"):
            await store.write(*pair(1))
        assert await whole_pairs(store) == {0}
        # Redis lets a script go on that began with removing something.
        await store.write(*(Put(put.kind, put.key, BIG, terms={"other": ""}) for put in pair(0)))
        assert (await store.page(KIND, "other", limit=9)).total == 2
        assert await whole_pairs(store) == set()
        await store.write(*(Delete(KIND, put.key) for put in pair(0)))
        server.command("CONFIG", "SET", "maxmemory", "0")
        await store.write(*pair(1))
        assert await whole_pairs(store) == {1}

    async def test_a_server_that_became_a_replica_is_unavailable_for_writes(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        await store.write(*pair(0))
        server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(Unavailable, match="read-only replica"):
            await store.write(*pair(1))
        assert await whole_pairs(store) == {0}
        server.command("REPLICAOF", "NO", "ONE")
        await store.write(*pair(1))
        assert await whole_pairs(store) == {0, 1}

    @pytest.mark.parametrize("credentials", ["", ":wrong@", "nobody:wrong@"])
    async def test_wrong_credentials_are_told_and_not_shown(self, server: RedisServer, credentials: str) -> None:
        server.command("CONFIG", "SET", "requirepass", "right")
        async with RedisStore(server.url.replace("//", f"//{credentials}")) as store:
            with pytest.raises(Unavailable, match="refuses the credentials in its url") as caught:
                await store.get(KIND, "a")
            assert "wrong" not in caught.value.message.replace("WRONGPASS", "")
        async with RedisStore(server.url.replace("//", "//:right@")) as store:
            assert await store.get(KIND, "a") == [None]

    async def test_a_server_that_forgot_the_scripts_is_given_them_again(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        await store.write(*pair(0))
        server.command("SCRIPT", "FLUSH")
        await store.write(*pair(1))
        assert await whole_pairs(store) == {0, 1}

    async def test_a_server_that_was_emptied_has_its_version_again_with_the_first_write(
        self, server: RedisServer, store: RedisStore
    ) -> None:
        await store.write(*pair(0))
        server.command("FLUSHALL")
        await store.write(*pair(1))
        assert server.command("GET", "{aenv}:version") == b"1"

    async def test_a_server_that_keeps_nothing_on_disk_is_warned_about_once(
        self, server: RedisServer, store: RedisStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.command("CONFIG", "SET", "appendonly", "no")
        await store.get(KIND, "a")
        await store.get(KIND, "a")
        assert [record.message for record in caplog.records if "appendonly" in record.message] == [
            "redis has appendonly off: records written last are lost when it crashes"
        ]


@contextlib.asynccontextmanager
async def _cutting_proxy(port: int, word: bytes) -> AsyncIterator[int]:
    """A port that leads to `port`, and hangs up in place of the answer to whatever holds `word`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, questions = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(writer), contextlib.closing(questions):
            while question := await reader.read(1 << 20):
                questions.write(question)
                answer = await answers.read(1 << 20)
                if word in question:
                    return
                writer.write(answer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        yield proxy.sockets[0].getsockname()[1]
