"""`aenv backup` and `aenv restore`: one file that brings everything back, made while a gateway serves."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
from pathlib import Path

import pytest

from aenv.base.errors import Conflict, InvalidRequest, NotFound
from aenv.control.homes import backups
from aenv.control.stores.base import Put
from aenv.control.stores.sqlite import SqliteStore
from tests.command_line import aenv
from tests.gateways import running_gateway
from tests.test_upgrade import ALICE, DIGEST, ask, check_all_is_there, unpacked


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With accounts, an environment and a service."""
    return unpacked("1.0.0", tmp_path / "home")


async def test_what_was_saved_while_a_gateway_served_is_restored_elsewhere(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "saved" / "aenv.backup"
    file.parent.mkdir()
    async with running_gateway(home) as gateway:
        done = await asyncio.to_thread(aenv, "backup", file, "--home", home)
        assert (done.returncode, done.stdout.strip()) == (0, str(file)), done.stderr
        await ask(gateway, "DELETE", "/env-service/steady")  # after the backup: it is back with the restore
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["aenv.backup"]
    done = await asyncio.to_thread(aenv, "restore", file, "--home", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "run" / "node").read_text() == (home / "run" / "node").read_text()
    await check_all_is_there(tmp_path / "new")


async def test_a_backup_is_of_one_moment_however_much_is_written_meanwhile(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with SqliteStore(home / "aenv.db") as store:
        stop = asyncio.Event()

        async def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                await store.write(*(Put("pair", side, {"n": number}) for side in ("left", "right")))

        writing = asyncio.create_task(write())
        try:
            for number in range(5):
                await asyncio.to_thread(backups.save, home, tmp_path / f"{number}.backup")
        finally:
            stop.set()
            await writing
    for number in range(5):
        backups.restore(tmp_path / f"new-{number}", tmp_path / f"{number}.backup")
        async with SqliteStore(tmp_path / f"new-{number}" / "aenv.db") as store:
            left, right = await store.get("pair", "left", "right")
            assert (left and left.value) == (right and right.value)


async def test_nothing_is_restored_over_a_gateway_or_over_records(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "aenv.backup"
    backups.save(home, file)
    async with running_gateway(home):
        with pytest.raises(Conflict, match=r"a gateway runs on .* stop it first"):
            backups.restore(home, file, force=True)
    with pytest.raises(Conflict, match="exists already"):
        backups.restore(home, file)
    async with SqliteStore(home / "aenv.db") as store:
        await store.write(Put("thing", "later", {}))
    backups.restore(home, file, force=True)
    async with SqliteStore(home / "aenv.db") as store:
        assert await store.get("thing", "later") == [None]
    [aside] = [path for path in home.glob("aenv.db.before-*") if not path.name.endswith(("-wal", "-shm"))]
    db = sqlite3.connect(aside)
    assert db.execute("SELECT count(*) FROM documents WHERE key = 'later'").fetchone() == (1,)
    db.close()


def test_a_file_that_exists_is_not_replaced_unless_told(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "aenv.backup"
    file.write_text("precious")
    with pytest.raises(Conflict, match="exists already"):
        backups.save(home, file)
    assert file.read_text() == "precious"
    backups.save(home, file, force=True)
    assert tarfile.is_tarfile(file)


def test_a_damaged_backup_is_refused_and_nothing_is_touched(home: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "aenv.backup", tmp_path / "new"
    backups.save(home, file)
    whole = file.read_bytes()
    bundle = (home / "blobs" / DIGEST[:2] / DIGEST).read_bytes()
    broken = {
        "cut": whole[: len(whole) // 2],
        "a bundle": whole.replace(bundle, bytes(len(bundle))),
        "the records": whole.replace(b"SQLite format 3", b"SQLite format 4"),
        "text": b"not a backup" * 100,
        "nothing": b"",
    }
    for what, content in broken.items():
        file.write_bytes(content)
        with pytest.raises(InvalidRequest, match=r"damaged|not a backup"):
            backups.restore(target, file)
        assert [path.name for path in target.rglob("*")] == [], what


def test_an_archive_that_is_not_ours_writes_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "evil.tar"
    with tarfile.open(file, "w") as archive:
        archive.addfile(tarfile.TarInfo("../escaped"))
    with pytest.raises(InvalidRequest, match=r"is not a backup: it holds '\.\./escaped'"):
        backups.restore(tmp_path / "new", file)
    assert not (tmp_path / "escaped").exists()


def test_what_such_a_backup_cannot_hold_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="redis-cli --rdb"):
        backups.save(tmp_path, tmp_path / "x", store="redis://localhost")
    (tmp_path / "aenv.db").touch()
    with pytest.raises(InvalidRequest, match="S3"):
        backups.save(tmp_path, tmp_path / "x", blobs="s3://bucket")
    with pytest.raises(NotFound, match="no store"):
        backups.save(tmp_path / "none", tmp_path / "x")


def test_a_bundle_that_is_missing_is_told_and_the_rest_is_saved(home: Path, tmp_path: Path) -> None:
    (home / "blobs" / DIGEST[:2] / DIGEST).unlink()
    done = aenv("backup", tmp_path / "aenv.backup", "--home", home)
    assert done.returncode == 0
    assert f"bundle {DIGEST} has a record, but no file" in done.stderr
    assert ALICE not in (tmp_path / "aenv.backup").read_bytes().decode("latin-1")
