"""A file of records that is empty, or half there, is never taken for a new store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from aenv.base.errors import Unavailable
from aenv.control.stores.base import Put
from aenv.control.stores.sqlite import SqliteStore

ROOT = Path(__file__).parent.parent
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
import aenv.control.stores.sqlite as module

count = 0
def come_nearer(event, arguments):
    global count
    if event in ("open", "sqlite3.connect", "os.rename") and "aenv.db" in str(arguments[0]):
        count += 1
        if count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    sys.addaudithook(come_nearer)
    async with module.SqliteStore(Path(sys.argv[1])):
        pass

asyncio.run(main())
"""


async def test_an_empty_file_is_not_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "aenv.db"
    path.touch()
    with pytest.raises(Unavailable, match=r"aenv\.db' is empty, .*backup.* or remove it"):
        async with SqliteStore(path):
            pass
    assert path.read_bytes() == b""
    path.unlink()
    async with SqliteStore(path) as store:
        await store.write(Put("thing", "a", {}))


async def test_a_log_of_writes_without_its_file_is_not_a_new_store(tmp_path: Path) -> None:
    path, log = tmp_path / "aenv.db", tmp_path / "aenv.db-wal"
    log.write_bytes(b"writes")
    with pytest.raises(Unavailable, match=r"aenv\.db' is missing, and its log .*aenv\.db-wal' is there"):
        async with SqliteStore(path):
            pass
    assert log.read_bytes() == b"writes"
    assert not path.exists()


@pytest.mark.slow  # a process is started for each moment
async def test_a_process_that_is_killed_while_it_makes_the_file_leaves_none_that_is_empty(tmp_path: Path) -> None:
    for moment in range(1, 10):
        path = tmp_path / str(moment) / "aenv.db"
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(moment)], cwd=ROOT, timeout=20)
        async with SqliteStore(path) as store:
            await store.write(Put("thing", "a", {}))
        assert [file.name for file in path.parent.iterdir()] == ["aenv.db"]
        assert path.stat().st_mode & 0o777 == 0o600
        if done.returncode == 0:
            break
    assert moment > 2


async def test_the_file_may_be_a_link_to_where_there_is_none_yet(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path = tmp_path / "aenv.db"
    path.symlink_to(tmp_path / "disk" / "records.db")
    async with SqliteStore(path) as store:
        await store.write(Put("thing", "a", {}))
    assert path.is_symlink()
    db = sqlite3.connect(tmp_path / "disk" / "records.db")
    assert db.execute("SELECT count(*) FROM documents").fetchone() == (1,)
    db.close()
