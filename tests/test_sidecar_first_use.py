"""Sidecars that are made at their first use: of the host's own system, or built of a Dockerfile."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv.base.addresses import Origin
from aenv.base.errors import NetworkError, StartFailed
from aenv.base.http1 import Pool
from aenv.control.gateway.rootfs_cache import RootfsCache
from aenv.engines.base import Address, InstanceSpec, LazySidecar
from aenv.engines.folder import InstanceFolder
from aenv.engines.instance_state import AwaitedSidecar, InstanceState
from aenv.engines.native import sidecar_first_use, sidecars
from aenv.engines.native.engine import NativeEngine
from aenv.engines.native.sidecar_first_use import DestroyedMeanwhile, SidecarFirstUses
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.rootfs.resolver import RootfsResolver
from aenv.isolation.sandbox.build_run import run
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.native import traces
from tests.sidecars import ENVIRONMENT

Call = Callable[..., Awaitable[Any]]

# One engine for all: its zygotes take longer to start than anything that is tested here.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


class Builds:
    """Stands before the real rootfs_cache: counts, and waits or fails where a test wants it."""

    def __init__(self, rootfs_cache: RootfsCache) -> None:
        self._rootfs_cache = rootfs_cache
        self.begin()

    def begin(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.has_begun = asyncio.Event()

    async def lazy_sidecar_rootfs(self, second: LazySidecar) -> Rootfs:
        self.count += 1
        self.has_begun.set()
        await self.may_go_on.wait()
        if self.error:
            raise self.error
        return await self._rootfs_cache.lazy_sidecar_rootfs(second)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    (folder / "two.py").write_text(ENVIRONMENT)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(home: Path) -> AsyncIterator[tuple[NativeEngine, Builds]]:
    async def root_of(spec: InstanceSpec) -> Rootfs:
        return host_root(home)

    async with RootfsCache(RootfsResolver(home, run=run)) as rootfs_cache:
        builds = Builds(rootfs_cache)
        async with NativeEngine(home, root_of, lazy_sidecar_rootfs=builds.lazy_sidecar_rootfs) as engine:
            yield engine, builds


@pytest.fixture
def builds(shared: tuple[NativeEngine, Builds]) -> Builds:
    shared[1].begin()
    return shared[1]


@pytest_asyncio.fixture(loop_scope="module")
async def engine(shared: tuple[NativeEngine, Builds], builds: Builds, home: Path) -> AsyncIterator[NativeEngine]:
    engine = shared[0]
    yield engine
    for id in [*await engine.running(), *await engine.leftovers()]:
        await engine.destroy(id)
    assert traces(home) == []


@pytest_asyncio.fixture(loop_scope="module")
async def call() -> AsyncIterator[Call]:
    async with Pool() as pool:

        async def call(address: Address, name: str, **arguments: Any) -> Any:
            body = json.dumps(arguments).encode()
            head = [("content-type", "application/json")]
            response = await pool.request(address.origin, "POST", f"/tools/{name}", head, body)
            data = json.loads(await response.read())["data"]
            return data["content"][0]["text"] if data["is_error"] else data["structured"]

        yield call


@pytest.fixture
def spec(two: Path) -> InstanceSpec:
    return InstanceSpec("lazy-1", "two@1.0.0", two, sidecar=LazySidecar())


async def test_it_is_made_at_the_first_use_and_not_with_the_instance(
    engine: NativeEngine, builds: Builds, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    assert builds.count == 0
    assert sidecars.of(InstanceFolder(engine._root, spec.id)) is None
    done = await call(address, "run", command="pwd; ls /usr/bin/env; echo hi > note; cat note")
    assert (done["stdout"], builds.count) == ("/workspace\n/usr/bin/env\nhi\n", 1)
    assert (await call(address, "run", command="cat note"))["stdout"] == "hi\n"
    assert builds.count == 1


async def test_it_sees_neither_the_data_nor_a_variable_nor_the_code_of_the_first_part(
    engine: NativeEngine, spec: InstanceSpec, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text("forty-two")
    variables = {"API_KEY": "secret-key"}
    address = await engine.create(replace(spec, data=tmp_path, environment_variables=variables))
    assert (await call(address, "here", path="/data/answer"))["exists"]
    look = (
        "ls -A /data /environment; env; cat /proc/*/environ /run/variables.json /proc/1/maps; "
        f"echo; grep -c {tmp_path.name} /proc/self/mountinfo; ls {tmp_path}"
    )
    seen = (await call(address, "run", command=look))["stdout"]
    for hidden in ("answer", "secret-key", "two.py"):
        assert hidden not in seen
    assert "\n0\n" in seen


async def test_a_dockerfile_is_built_and_the_calls_that_come_meanwhile_wait_for_it(
    engine: NativeEngine, builds: Builds, spec: InstanceSpec, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("copied")
    text = "FROM ubuntu:24.04\nCOPY file /app/\nRUN echo run >> /app/file\nWORKDIR /app\nENV COLOUR=red\n"
    (tmp_path / "Dockerfile").write_text(text)
    builds.may_go_on.clear()
    address = await engine.create(replace(spec, sidecar=LazySidecar(tmp_path / "Dockerfile")))
    calls = [asyncio.ensure_future(call(address, "run", command=f"cat file; echo $COLOUR {n}")) for n in range(3)]
    await builds.has_begun.wait()
    assert not any(one.done() for one in calls)
    builds.may_go_on.set()
    done = [await one for one in calls]
    assert [one["stdout"] for one in done] == [f"copiedrun\nred {n}\n" for n in range(3)]
    assert builds.count == 1


async def test_a_build_that_fails_fails_the_calls_with_its_last_lines_and_the_next_call_tries_again(
    engine: NativeEngine, builds: Builds, spec: InstanceSpec, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nRUN echo the disk is upside down; false\n")
    address = await engine.create(replace(spec, sidecar=LazySidecar(tmp_path / "Dockerfile")))
    for _ in range(2):
        said = await call(address, "run", command="true")
        assert "Dockerfile line 2: RUN ended with status 1" in said
        assert "the disk is upside down" in said
    many = await asyncio.gather(*(call(address, "run", command="true") for _ in range(5)))
    assert all("upside down" in said for said in many)
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nRUN true\n")
    assert (await call(address, "run", command="echo better"))["stdout"] == "better\n"


async def test_a_failure_that_nobody_foresaw_is_told_without_its_details(
    engine: NativeEngine, builds: Builds, spec: InstanceSpec, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    builds.error = RuntimeError("private detail")
    address = await engine.create(spec)
    said = await call(address, "run", command="true")
    assert "the gateway's log says why" in said and "private detail" not in said
    assert "private detail" in caplog.text


async def test_one_that_ends_before_it_is_ready_leaves_the_first_part_alive(
    engine: NativeEngine, spec: InstanceSpec, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A root in which no sidecar can begin: its folder is not there.
    real = sidecars._assignment
    monkeypatch.setattr(sidecars, "_assignment", lambda *all: replace(real(*all), folder="/nowhere"))
    address = await engine.create(spec)
    assert "ended before it was ready" in await call(address, "run", command="true")
    monkeypatch.undo()
    assert (await call(address, "run", command="echo hi"))["stdout"] == "hi\n"


async def test_destroy_while_nobody_has_used_it_and_while_it_is_made_leaves_nothing(
    engine: NativeEngine, builds: Builds, spec: InstanceSpec, call: Call, home: Path
) -> None:
    await engine.create(spec)
    await engine.destroy(spec.id)
    assert traces(home) == []
    builds.may_go_on.clear()
    address = await engine.create(spec)
    asked = asyncio.ensure_future(call(address, "run", command="true"))
    await builds.has_begun.wait()
    await engine.destroy(spec.id)
    assert await _is_broken_off(asked)
    assert traces(home) == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(StartFailed("RUN ended with status 1"), "not_ready"), (DestroyedMeanwhile("it was destroyed"), None)],
)
async def test_a_reason_that_the_caller_can_mend_is_not_ready_and_an_end_is_an_error(
    error: StartFailed, outcome: str | None
) -> None:
    async def start(listener: socket.socket) -> None:
        raise error

    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        uses = SidecarFirstUses()
        uses.wait("one", listener.dup(), start)
        async with Pool() as pool:
            response = await pool.request(Origin(host, port), "POST", "/exec", [], b"{}")
            said = json.loads(await response.read())
        await uses.close()
    assert (response.status, said.get("outcome")) == (error.status, outcome)
    assert said["error"] == f"no sidecar: {error.message}"


async def test_a_destroy_that_takes_the_group_from_a_sidecar_is_not_told_as_not_ready(
    engine: NativeEngine, spec: InstanceSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*all: object, **options: object) -> None:
        raise FileNotFoundError("its group is gone")

    told: list[Exception] = []

    async def refuse(listener: socket.socket, error: Exception, **further: str) -> None:
        told.append(error)
        assert not further
        listener.accept()[0].close()

    address = await engine.create(spec)
    monkeypatch.setattr(engine._sidecars._spares, "make", gone)
    monkeypatch.setattr(sidecar_first_use, "_refuse", refuse)
    async with Pool() as pool:
        body = json.dumps({"command": "true"}).encode()
        response = await pool.request(
            address.origin, "POST", "/tools/run", [("content-type", "application/json")], body
        )
        assert json.loads(await response.read())["data"]["is_error"]
    assert isinstance(told[0], DestroyedMeanwhile)


async def test_a_build_ends_with_the_last_instance_that_waits_for_it(
    engine: NativeEngine, builds: Builds, spec: InstanceSpec, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nRUN sleep 86399\n")
    specs = [replace(spec, id=id, sidecar=LazySidecar(tmp_path / "Dockerfile")) for id in ("lazy-1", "lazy-2")]
    addresses = [await engine.create(one) for one in specs]
    calls = [asyncio.ensure_future(call(address, "run", command="true")) for address in addresses]
    while builds.count < 2 or not _sleeps():
        await asyncio.sleep(0.01)
    await engine.destroy("lazy-1")
    assert _sleeps()
    await engine.destroy("lazy-2")
    while _sleeps():
        await asyncio.sleep(0.01)
    assert [await _is_broken_off(one) for one in calls] == [True, True]


async def test_both_end_with_the_first_one_that_ends_once_it_is_made(
    engine: NativeEngine, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    await call(address, "run", command="true")
    second = sidecars.of(InstanceFolder(engine._root, spec.id))
    assert second
    ended = asyncio.create_task(engine.ended(spec.id))
    os.kill(second.pid, 9)
    assert await ended == "its sidecar ended"


async def test_an_instance_whose_engine_is_gone_before_the_first_use_is_a_leftover(
    engine: NativeEngine, spec: InstanceSpec
) -> None:
    await engine.create(spec)
    folder = InstanceFolder(engine._root, spec.id)
    assert spec.id in await engine.running()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder.write_state(InstanceState(sidecar=AwaitedSidecar(gone.pid, since=1)))
    assert spec.id not in await engine.running()
    assert await engine.leftovers() == [spec.id]


async def test_an_engine_that_makes_none_says_so(tmp_path: Path, spec: InstanceSpec, call: Call) -> None:
    async def root_of(spec: InstanceSpec) -> Rootfs:
        return host_root(tmp_path)

    async with NativeEngine(tmp_path, root_of) as engine:
        address = await engine.create(spec)
        assert "start it by 'aenv serve'" in await call(address, "run", command="true")
        await engine.destroy(spec.id)
    assert traces(tmp_path) == []


async def _is_broken_off(asked: asyncio.Future[Any]) -> bool:
    """Whichever part of the instance is gone first: the tool says so, or nobody says anything."""
    try:
        return "the sidecar closed the connection" in await asked
    except NetworkError:
        return True


def _sleeps() -> bool:
    found = subprocess.run(["pgrep", "-f", "^sleep 86399"], capture_output=True, check=False)
    return bool(found.stdout)
