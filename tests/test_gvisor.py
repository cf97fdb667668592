"""Instances in gVisor. Its program stands in for the real one here, and checks what it is told strictly."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aenv.artifacts.pythons.wanted import spelled
from aenv.base.errors import Conflict, NotFound, StartFailed, Unsupported
from aenv.base.http1 import Pool
from aenv.engines import proc
from aenv.engines.base import Address, Engine, InstanceSpec, Network, ResourceLimits
from aenv.engines.folder import InstanceFolder
from aenv.engines.instance_state import InstanceState
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.rootfs import Rootfs
from conformance.engine import EngineConformance, Leftovers, MakeEngine
from tests.conftest import REPOSITORY
from tests.interpreters import made_runtime, other_python
from tests.native import traces
from tests.system import require

pytestmark = pytest.mark.slow

ENVIRONMENT = """
import os
import resource
import sys
from pathlib import Path

from aenv import Context, register_tool

print("loading")


@register_tool
def seen(ctx: Context) -> dict:
    return {
        "arguments": sys.argv[1:],
        "mine": os.environ.get("MINE"),
        "id": ctx.id,
        "folder": os.getcwd(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "links": os.listdir("/sys/class/net"),
        "capabilities": Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0],
    }


@register_tool
def write(path: str) -> str:
    try:
        Path(path).write_text("hi")
    except OSError as error:
        return error.strerror
    return "written"


@register_tool
def become_a_link(target: str) -> None:
    socket = Path("/run/aenv/socket")
    socket.unlink(missing_ok=True)
    socket.symlink_to(target)
"""
SWAPPED = """
import os

os.unlink("/run/aenv/socket")
os.symlink("/var/run/some-daemon.sock", "/run/aenv/socket")
"""

Call = Callable[..., Awaitable[Any]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def runsc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, where the engine looks for it."""
    if os.geteuid() != 0:
        pytest.skip("the gVisor tier needs root")
    require("nsenter", "util-linux")
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "runsc"
    start = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from tests.standin_runsc import main; main()"
    program.write_text(f"#!{sys.executable}\n{start}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return program


@pytest_asyncio.fixture
async def make_engine(home: Path) -> AsyncIterator[Callable[[], NativeEngine]]:
    root = host_root(home)
    made: list[NativeEngine] = []

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    def make() -> NativeEngine:
        made.append(NativeEngine(home, root_of))
        return made[-1]

    yield make
    for engine in reversed(made):
        await engine.__aexit__(None, None, None)


@pytest_asyncio.fixture
async def engine(make_engine: Callable[[], NativeEngine], home: Path) -> AsyncIterator[NativeEngine]:
    engine = make_engine()
    await engine.__aenter__()
    yield engine
    for id in [*await engine.running(), *await engine.leftovers()]:
        await engine.destroy(id)
    assert traces(home) == []
    assert [*home.glob("run/runsc/*")] == []
    assert str(home) not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def spec(project: Callable[[str], Path]) -> InstanceSpec:
    return InstanceSpec("deep-1", "deep@1.0.0", project(ENVIRONMENT), isolation="gvisor", start_timeout=30)


@pytest_asyncio.fixture
async def call() -> AsyncIterator[Call]:
    async with Pool() as pool:

        async def call(address: Address, name: str, **arguments: Any) -> Any:
            head = [("content-type", "application/json")]
            body = json.dumps(arguments).encode()
            response = await pool.request(address.origin, "POST", f"/tools/{name}", head, body)
            data = json.loads(await response.read())["data"]
            return data["structured"] or (data["content"][0]["text"] if data["content"] else None)

        yield call


class _InGvisor(NativeEngine):
    """Puts every instance there."""

    async def create(self, spec: InstanceSpec) -> Address:
        return await super().create(replace(spec, isolation="gvisor"))


class TestGvisor(EngineConformance):
    """The suite for all engines."""

    @pytest.fixture
    async def make_engine(self, home: Path, runsc: Path) -> AsyncIterator[MakeEngine]:
        root = host_root(home)
        made: list[NativeEngine] = []

        async def root_of(spec: InstanceSpec) -> Rootfs:
            return root

        def make() -> Engine:
            made.append(_InGvisor(home, root_of))
            return made[-1]

        yield make
        for engine in reversed(made):
            await engine.__aexit__(None, None, None)

    @pytest.fixture
    def leftovers(self, home: Path) -> Leftovers:
        return lambda: traces(home)


async def test_an_instance_runs_in_gvisor_and_its_address_says_so(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, call: Call
) -> None:
    given = replace(
        spec, arguments=("a", "b c"), environment_variables={"MINE": "x=y"}, limits=ResourceLimits(open_files=99)
    )
    address = await engine.create(given)
    assert address.isolation == ("gVisor (runsc)",)
    assert (address.root, [tool["name"] for tool in address.tools]) == ("host", ["seen", "write", "become_a_link"])
    assert await call(address, "seen") == {
        "arguments": ["a", "b c"],
        "mine": "x=y",
        "id": "deep-1",
        "folder": "/workspace",
        "files": 99,
        "links": ["lo"],
        "capabilities": "0000000000000000",
    }


@pytest.mark.timeout(300)  # a runtime is made
async def test_it_runs_on_the_python_that_it_is_given_and_its_log_is_read_there(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, home: Path, project: Callable[[str], Path]
) -> None:
    found = other_python(home)
    code = "import sys\nprint('runs on %d.%d' % sys.version_info[:2])\n"
    await engine.create(replace(spec, project=project(code), python=await made_runtime(found, home)))
    log = b"".join([piece async for piece in engine.logs(spec.id)])
    assert f"runs on {spelled(found.minor)}\n" in log.decode()


async def test_what_it_writes_stays_in_it_and_the_rest_cannot_be_written(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, call: Call, home: Path
) -> None:
    address = await engine.create(spec)
    assert await call(address, "write", path="/workspace/note") == "written"
    assert await call(address, "write", path="/etc/note") == "written"
    assert await call(address, "write", path="/environment/note") == "Read-only file system"
    assert await call(address, "write", path="/usr/note") == "Read-only file system"
    assert list(home.rglob("note")) == []
    assert not (spec.project / "note").exists()


async def test_commands_run_in_it_and_its_log_can_be_read(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec
) -> None:
    await engine.create(spec)
    done = [piece async for piece in engine.exec(spec.id, ["sh", "-c", "cat; pwd; exit 3"], stdin=b"hi ")]
    assert b"".join(piece.data for piece in done) == b"hi /workspace\n"
    assert done[-1].exit_code == 3
    assert b"loading" in b"".join([piece async for piece in engine.logs(spec.id)])
    followed = engine.logs(spec.id, follow=True)
    assert b"loading" in await anext(followed)
    await followed.aclose()  # type: ignore[attr-defined]


async def test_the_log_of_an_instance_of_an_earlier_build_can_be_read(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, home: Path
) -> None:
    await engine.create(spec)
    folder = InstanceFolder(home / "run" / "instances", spec.id)
    *python, start = folder.read_state().runtime or ()
    earlier = f"{start.rpartition('; from ')[0]}; from aenv.boot import apart; apart.main()"
    folder.write_state(InstanceState(runtime=(*python, earlier)))
    assert b"loading" in b"".join([piece async for piece in engine.logs(spec.id)])


async def test_it_is_limited_measured_and_frozen_like_others(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, call: Call, home: Path
) -> None:
    address = await engine.create(replace(spec, limits=ResourceLimits(cpus=0.5, memory_bytes=300 << 20, pids=77)))
    said = json.loads(next((home / "run/bundles").glob("*/config.json")).read_text())["linux"]["resources"]
    limits = {"memory": {"limit": 300 << 20}, "pids": {"limit": 77}, "cpu": {"quota": 50000, "period": 100000}}
    assert said == limits
    used = (await engine.used([spec.id]))[spec.id]
    assert used.processes >= 1
    await engine.freeze(spec.id)
    asked = asyncio.ensure_future(call(address, "seen"))
    done, _ = await asyncio.wait({asked}, timeout=0.2)
    assert not done
    await engine.thaw(spec.id)
    assert (await asked)["id"] == "deep-1"


async def test_an_engine_that_comes_later_finds_it_and_ends_it(
    engine: NativeEngine, make_engine: Callable[[], NativeEngine], runsc: Path, spec: InstanceSpec, call: Call
) -> None:
    address = await engine.create(spec)
    later = make_engine()
    found = await later.running()
    assert found == {spec.id: address}
    assert (await call(found[spec.id], "seen"))["id"] == "deep-1"
    ended = asyncio.create_task(later.ended(spec.id))
    await engine.destroy(spec.id)
    assert await ended == "its process ended"
    assert proc.start_time(address.pid) is None


async def test_one_that_crashes_is_noticed(engine: NativeEngine, runsc: Path, spec: InstanceSpec) -> None:
    address = await engine.create(spec)
    ended = asyncio.create_task(engine.ended(spec.id))
    os.kill(address.pid, 9)
    assert await ended == "its process ended"
    assert await engine.running() == {}
    assert await engine.leftovers() == [spec.id]


async def test_an_id_is_used_once(engine: NativeEngine, runsc: Path, spec: InstanceSpec) -> None:
    await engine.create(spec)
    with pytest.raises(Conflict):
        await engine.create(spec)


async def test_code_that_fails_to_load_is_told_and_leaves_nothing(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, home: Path, project: Callable[[str], Path]
) -> None:
    with pytest.raises(StartFailed, match="the database is missing"):
        await engine.create(replace(spec, project=project("raise RuntimeError('the database is missing')")))
    assert traces(home) == []


async def test_the_first_word_of_an_instance_counts_also_when_the_second_comes_with_it(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec
) -> None:
    told = [json.dumps({"ready": False, "error": error}) for error in ("the database is missing", "it ended")]
    runsc.write_text(f"#!/bin/sh\n[ \"$2\" = delete ] || printf '%s\\n%s\\n' '{told[0]}' '{told[1]}'\n")
    with pytest.raises(StartFailed, match=r"failed to load: the database is missing$"):
        await engine.create(spec)


async def test_code_that_never_becomes_ready_is_ended(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, home: Path, project: Callable[[str], Path]
) -> None:
    endless = project("import time\ntime.sleep(1000)")
    with pytest.raises(StartFailed, match="not ready within 2 s"):
        await engine.create(replace(spec, project=endless, start_timeout=2))
    assert traces(home) == []


async def test_what_runsc_says_when_it_fails_is_told(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec
) -> None:
    runsc.write_text("#!/bin/sh\necho 'the platform is not supported' >&2; exit 128\n")
    with pytest.raises(StartFailed, match=r"exit code 128\): the platform is not supported"):
        await engine.create(spec)


async def test_code_cannot_have_the_gateway_connect_to_another_socket(
    engine: NativeEngine, runsc: Path, spec: InstanceSpec, call: Call, project: Callable[[str], Path]
) -> None:
    with pytest.raises(StartFailed, match="something else than a socket"):
        await engine.create(replace(spec, project=project(SWAPPED)))
    address = await engine.create(spec)
    await call(address, "become_a_link", target="/var/run/some-daemon.sock")
    async with Pool() as pool:  # a new connection, by the path
        response = await pool.request(address.origin, "GET", "/health")
        assert response.status == 200
        await response.read()


async def test_what_it_cannot_do_is_refused(engine: NativeEngine, runsc: Path, spec: InstanceSpec) -> None:
    with pytest.raises(Unsupported, match="network to 'none' or 'full'"):
        await engine.create(replace(spec, network=Network("egress", ("a.example",))))
    with pytest.raises(Unsupported, match="no sidecar"):
        await engine.create(replace(spec, sidecar="tiny:1"))
    with pytest.raises(Unsupported, match="warmPool"):
        await engine.keep_warm(spec, 1)
    await engine.create(spec)
    with pytest.raises(Unsupported, match="files of an instance in gVisor"):
        await engine.list(spec.id)
    with pytest.raises(Unsupported, match="ports of an instance in gVisor"):
        await engine.port(spec.id, 80)
    with pytest.raises(NotFound):
        engine.exec("other", ["true"])


async def test_without_runsc_the_fix_is_told(
    engine: NativeEngine, spec: InstanceSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="install its program 'runsc'"):
        await engine.create(spec)
