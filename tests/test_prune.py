"""`aenv prune` removes what nothing needs, and nothing else; disk use is shown by doctor and metrics."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from aenv.artifacts import requirements
from aenv.control.homes import disk_usage, pruning
from aenv.control.homes.prunable import KINDS, PruneScope
from aenv.control.hub import uploads
from aenv.control.stores.base import Put
from aenv.control.stores.sqlite import SqliteStore
from tests.command_line import aenv, environ
from tests.gateways import make_project, running_gateway
from tests.hubs import announce, pack, running_hub

pytestmark = pytest.mark.slow  # each test runs commands, a gateway or a hub

OLD = time.time() - 40 * 86400


def old(path: Path, content: str = "x" * 10_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (OLD, OLD))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With something old and something new of every kind that lies on the disk."""
    home = tmp_path / "home"
    for age, when in (("old", OLD), ("new", time.time())):
        for place in ("roots/images", "roots/steps", "roots"):
            old(home / place / age / "file")
            os.utime(home / place / age, (when, when))
        old(home / "requirements" / age / "file")
        old(home / "requirements" / age / ".used")
        os.utime(home / "requirements" / age / ".used", (when, when))
        old(home / "environments" / age / "file")
        os.utime(old(home / "environments" / f"{age}.used"), (when, when))
        for file in (f"evals/{age}.jsonl", f"run/{age}.log", f"run/gateway.log.{age}"):
            os.utime(old(home / file), (when, when))
    for file in ("data/tau2/file", "storage/alice/notes/file", "envs/mine/config.json"):
        old(home / file, "{}")
    return home


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def prune(home: Path, *options: str) -> tuple[int, str, str]:
    done = aenv("prune", "--home", home, *options)
    return done.returncode, done.stdout, done.stderr


def test_a_dry_run_shows_kinds_sizes_and_ages_and_removes_nothing(home: Path) -> None:
    before = files(home)
    code, said, talk = prune(home, "--dry-run")
    assert code == 0
    rows = [line.split() for line in said.splitlines()[1:]]
    kinds = ["code", "evals", "logs", "logs", "requirements", "rootfs", "rootfs", "rootfs"]
    assert sorted(row[0] for row in rows) == kinds
    assert {row[-1] for row in rows} == {"40d"}
    assert "would remove 8 items" in talk
    assert files(home) == before
    items = json.loads(prune(home, "--dry-run", "--json")[1])["items"]
    assert all(item["size_bytes"] >= 10_000 for item in items)


def test_what_is_old_goes_and_what_is_new_or_precious_stays(home: Path) -> None:
    code, _, talk = prune(home, "-y")
    assert (code, "removed 8 items" in talk) == (0, True)
    left = files(home)
    assert not {file for file in left if "old" in file}
    assert {"data/tau2/file", "storage/alice/notes/file", "envs/mine/config.json"} <= left
    for file in ("roots/images/new/file", "requirements/new/file", "environments/new/file", "evals/new.jsonl"):
        assert file in left
    assert "removed 0 items" in prune(home, "-y")[2]


def test_a_kind_alone_can_be_pruned_and_an_age_be_given(home: Path) -> None:
    assert prune(home, "-y", "--only", "evals")[0] == 0
    assert not (home / "evals" / "old.jsonl").exists()
    assert (home / "requirements" / "old").exists()
    assert "would remove 0 items" in prune(home, "--dry-run", "--older-than", "41d")[2]
    assert prune(home, "--older-than", "soon")[0] == 2


def test_without_a_person_to_ask_nothing_is_removed(home: Path) -> None:
    before = files(home)
    code, _, talk = prune(home)
    assert (code, "cannot ask for confirmation" in talk, files(home)) == (1, True, before)


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    code, _, talk = prune(tmp_path / "none", "--dry-run")
    assert (code, "does not exist" in talk, (tmp_path / "none").exists()) == (1, True, False)


async def test_what_an_instance_runs_with_stays_however_old_it_is(home: Path, tmp_path: Path) -> None:
    for name in ("requirements/old", "environments/old"):
        program = home / name / "sleep.py"
        program.write_text("import sys; print(flush=True); sys.stdin.read()")
        process = await asyncio.create_subprocess_exec(
            "python3", str(program), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout and process.stdin
        await process.stdout.readline()
        assert await pruning.prune(PruneScope(home), ("requirements", "code"), 30 * 86400.0) == []
        assert program.exists()
        process.stdin.close()
        await process.wait()
    assert [one.kind for one in await pruning.prune(PruneScope(home), KINDS, 30 * 86400.0)]
    assert not (home / "requirements" / "old").exists()
    assert requirements.unused(home, set(), 30 * 86400.0) == []


async def test_logs_that_a_gateway_writes_stay(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path)):
        found = await pruning.prune(PruneScope(home), ("logs",), 30 * 86400.0)
        assert [one.name for one in found] == ["gateway.log.old"]
        assert (home / "run" / "old.log").exists()


async def test_a_bundle_that_no_version_refers_to_goes_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    content, digest = pack(tmp_path)
    place = PruneScope(home)
    async with running_hub(home) as hub:
        await announce(hub, content, digest)
        await hub.ask("PUT", f"/bundles/{digest}?offset=0", content)
        version = {"name": "echo", "version": "1.0.0", "bundle": digest}
        assert (await hub.ask("POST", "/env", version)).status == 200
        now = time.time()
        monkeypatch.setattr(uploads.time, "time", lambda: now + 31 * 86400)
        assert await pruning.prune(place, ("bundles",), 30 * 86400.0) == []
        assert (await hub.ask("GET", "/env/echo/1.0.0/bundle")).body == content
        assert (await hub.ask("DELETE", "/env/echo/1.0.0")).status == 200
        assert await pruning.unused(place, ("bundles",), 30 * 86400.0) == []  # it was used until a moment ago
        monkeypatch.setattr(uploads.time, "time", lambda: now + 62 * 86400)
        [found] = await pruning.unused(place, ("bundles",), 30 * 86400.0)
        assert (found.name, found.size_bytes) == (digest, len(content))
        assert await pruning.prune(place, ("bundles",), 30 * 86400.0) == [found]
        assert await hub.blobs.size(digest) is None


async def test_a_store_that_knows_nothing_of_a_bundle_does_not_condemn_it(tmp_path: Path) -> None:
    # As when a gateway has its records in Redis, and 'aenv prune' was not told so.
    home = tmp_path / "home"
    blob = old(home / "blobs" / "ab" / ("ab" * 32))
    assert await pruning.prune(PruneScope(home), ("bundles",), 0.0) == []
    assert not (home / "aenv.db").exists()
    async with SqliteStore(home / "aenv.db") as store:
        await store.write(Put("thing", "a", {}))
    assert await pruning.prune(PruneScope(home), ("bundles",), 0.0) == []
    assert blob.exists()


# Disk use


def test_sizes_count_what_lies_on_the_disk_and_follow_no_link(home: Path, tmp_path: Path) -> None:
    old(tmp_path / "elsewhere" / "large", "x" * 1_000_000)
    (home / "evals" / "link").symlink_to(tmp_path / "elsewhere")
    found = disk_usage.sizes(home)
    assert list(found) == list(disk_usage.PARTS)
    assert 20_000 < found["evals"] < 100_000
    assert found["store"] == 0
    with pytest.raises(disk_usage.Stopped):
        disk_usage.sizes(home, lambda: True)


def test_doctor_tells_what_the_home_folder_takes(home: Path) -> None:
    done = aenv("doctor", env=environ(AENV_HOME=str(home)))
    [row] = [line for line in done.stdout.splitlines() if line.startswith("disk")]
    assert f"{home} takes " in row
    assert " free" in row
    said = json.loads(aenv("doctor", "--json", env=environ(AENV_HOME=str(home))).stdout)
    assert said["disk"]["evals"] > 20_000
    assert said["free_bytes"] > 0


async def test_metrics_tell_what_the_home_folder_takes(home: Path, tmp_path: Path) -> None:
    async with running_gateway(home, make_project(tmp_path)) as gateway:
        while True:
            response = await gateway.pool.request(gateway.control, "GET", "/metrics")
            text = (await response.read()).decode()
            if 'aenv_home_bytes{part="evals"}' in text:  # measured by a thread, since the gateway began
                break
        sizes = {
            line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("aenv_home")
        }
        assert sizes['aenv_home_bytes{part="evals"}'] > 20_000
        assert sizes["aenv_home_free_bytes"] > 0
