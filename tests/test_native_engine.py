"""The native engine: the suite for all engines, and what only it promises."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.base import wire
from aenv.base.errors import NotFound
from aenv.base.http1 import Pool
from aenv.engines.base import Engine, Freeze, InstanceSpec, Measures, ResourceLimits, Warm
from aenv.engines.descriptors import readable
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.rootfs import Rootfs
from conformance.capabilities import CapabilityConformance
from conformance.engine import EngineConformance, Leftovers, MakeEngine, Projects, call
from tests.native import groups, traces

pytestmark = pytest.mark.slow  # each starts a native engine


def new_id() -> str:
    return wire.new_instance_id("conformance")


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "projects")


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool() as pool:
        yield pool


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def root_of(home: Path) -> Callable[[InstanceSpec], Awaitable[Rootfs]]:
    root = host_root(home)

    async def find(spec: InstanceSpec) -> Rootfs:
        return root

    return find


@pytest.fixture
async def make_engine(
    home: Path, root_of: Callable[[InstanceSpec], Awaitable[Rootfs]]
) -> AsyncIterator[MakeEngine]:
    async with AsyncExitStack() as stack:
        engines: list[NativeEngine] = []

        def make() -> Engine:
            engines.append(NativeEngine(home, root_of))
            stack.push_async_exit(engines[-1])
            return engines[-1]

        yield make


@pytest.fixture
def leftovers(home: Path) -> Leftovers:
    return lambda: traces(home)


class TestNativeEngine(EngineConformance, CapabilityConformance):
    """The suite."""

    @pytest.fixture
    def make_engine(self, make_engine: MakeEngine) -> MakeEngine:
        return make_engine

    @pytest.fixture
    def leftovers(self, leftovers: Leftovers) -> Leftovers:
        return leftovers


STATEFUL = '''
import os
import random
from aenv import register_tool

seen = []


@register_tool
def note(text: str) -> list[str]:
    """Remember it."""
    seen.append(text)
    return seen


@register_tool
def about() -> dict:
    """What this instance is."""
    return {"variable": os.environ.get("COLOUR"), "pid": os.getpid(), "number": random.random()}
'''
STARTING = '''
import asyncio
from aenv import register_tool


@register_tool
async def start() -> list[str]:
    """Start a program."""
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return [said.decode()]
'''
EAGER = '''
import os
from aenv import register_tool

COLOUR = os.environ.get("COLOUR")


@register_tool
def colour() -> list[str]:
    """The colour that it was loaded with."""
    return [COLOUR]
'''


class TestLeftovers:
    async def test_a_group_that_was_made_just_before_its_engine_was_killed_is_removed(
        self, make_engine: MakeEngine, projects: Projects, leftovers: Leftovers
    ) -> None:
        dead, spec = make_engine(), projects.spec()
        assert isinstance(dead, NativeEngine)
        dead._folders.take(spec.id)[1].close()
        dead._cgroups.make(spec.id, cpus=None, memory_bytes=None, pids=10)
        engine = make_engine()
        assert isinstance(engine, NativeEngine)
        for id in await engine.leftovers():
            await engine.destroy(id)
        assert leftovers() == []


class TestHeldOpen:
    async def test_an_engine_holds_no_file_of_an_instance_that_runs(
        self, make_engine: MakeEngine, projects: Projects
    ) -> None:
        """Or it would have to take the instance's file system apart, and wait for that, when it ends it."""
        engine, spec = make_engine(), projects.spec(STATEFUL)
        await engine.create(spec)
        held = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
        assert held and not [path for path in held if path.endswith("instance.log")]
        await end(engine, spec)


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")  # not that of the list itself


class TestLoading:
    async def test_what_is_loaded_once_is_every_instances_own(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        engine, first = make_engine(), projects.spec(STATEFUL, environment_variables={"COLOUR": "red"})
        second = replace(first, id=new_id(), environment_variables={"COLOUR": "blue"})
        addresses = [await engine.create(first), await engine.create(second)]
        assert await call(pool, addresses[0], "note", text="one") == ["one"]
        assert await call(pool, addresses[1], "note", text="two") == ["two"]
        told = [await call(pool, address, "about") for address in addresses]
        assert [one["variable"] for one in told] == ["red", "blue"]
        assert told[0]["number"] != told[1]["number"]
        await end(engine, first, second)

    async def test_code_that_reads_a_variable_is_loaded_with_that_of_its_instance(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        engine, first = make_engine(), projects.spec(EAGER, environment_variables={"COLOUR": "red"})
        second = replace(first, id=new_id(), environment_variables={"COLOUR": "blue"})
        assert await call(pool, await engine.create(first), "colour") == ["red"]
        assert await call(pool, await engine.create(second), "colour") == ["blue"]
        await end(engine, first, second)

    @pytest.mark.parametrize("first", ["", "import os\nCOLOUR = os.environ.get('COLOUR')\n"])
    async def test_an_async_tool_starts_programs(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool, first: str
    ) -> None:
        engine, spec = make_engine(), projects.spec(first + STARTING)
        address = await engine.create(spec)
        for _ in range(2):
            assert await call(pool, address, "start") == ["hello\n"]
        await end(engine, spec)

    async def test_code_that_was_changed_is_what_the_next_instance_runs(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        engine, first = make_engine(), projects.spec(STATEFUL)
        await engine.create(first)
        (first.project / "src" / "environment.py").write_text(STATEFUL + "\n\nseen.append('changed')\n")
        second = replace(first, id=new_id())
        assert await call(pool, await engine.create(second), "note", text="x") == ["changed", "x"]
        await end(engine, first, second)

    async def test_modules_that_are_named_are_loaded_once_before_there_is_an_instance(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        code = "import os\nimport loaded_once\nfrom aenv import register_tool\nprint(os.getpid())\n"
        code += (
            "@register_tool\ndef where() -> dict:\n    return {'loaded in': loaded_once.PID, 'pid': os.getpid()}\n"
        )
        engine, spec = make_engine(), projects.spec(code, preload=("loaded_once",))
        (spec.project / "src" / "loaded_once.py").write_text("import os\nPID = os.getpid()\n")
        told = await call(pool, await engine.create(spec), "where")
        assert told["pid"] == 1
        assert told["loaded in"] > 1
        await end(engine, spec)


class TestNamespacesMadeAhead:
    async def test_an_instance_has_them_for_itself_and_with_its_own_limits(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        engine, first = make_engine(), projects.spec(STATEFUL + ROOM)
        pids = [(await engine.create(first)).pid]
        taken = {*_namespaces(os.getpid()), *_namespaces(pids[0])}  # its own may still be open in the stager
        await until(lambda: len(_held(pids[0]) - taken) >= 8)  # of all four: they are built in any order
        ahead = _held(pids[0])
        second = replace(first, id=new_id())
        third = replace(first, id=new_id(), limits=ResourceLimits(storage_bytes=8 << 20))
        addresses = [await engine.create(second), await engine.create(third)]
        pids += [address.pid for address in addresses]
        entered = [set(_namespaces(pid)) for pid in pids]
        assert entered[1] <= ahead
        # Those of the third may have the numbers of some that were ahead: what had other limits was closed before.
        assert len(set.union(*entered)) == 6
        assert [await call(pool, address, "room") for address in addresses] == [[1 << 30], [8 << 20]]
        await end(engine, first, second, third)


ROOM = '''

@register_tool
def room() -> list[int]:
    """How much can be written."""
    found = os.statvfs("/workspace")
    return [found.f_blocks * found.f_frsize]
'''


def _namespaces(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("mnt", "net")]


def _held(instance: int) -> set[str]:
    """The namespaces that the stager of an instance has open: above the process that forked it, and the zygote."""
    _, _, stager, *_ = psutil.Process(instance).parents()
    folder = Path(f"/proc/{stager.pid}/fd")
    links = [os.readlink(path) for path in folder.iterdir() if path.is_symlink()]
    return {link for link in links if link.startswith(("mnt:", "net:"))}


class TestWarmPool:
    async def test_a_spare_instance_is_used_once_and_another_made_in_its_place(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool, leftovers: Leftovers
    ) -> None:
        engine = make_engine()
        assert isinstance(engine, Warm)
        spec = projects.spec(STATEFUL)
        await engine.keep_warm(spec, 2)
        await until(lambda: engine.warm() == {"conformance@1.0": 2})
        first = replace(spec, id=new_id(), environment_variables={"COLOUR": "red"})
        second = replace(spec, id=new_id())
        addresses = [await engine.create(first), await engine.create(second)]
        assert [(await call(pool, address, "about"))["variable"] for address in addresses] == ["red", None]
        assert await call(pool, addresses[0], "note", text="mine") == ["mine"]
        await until(lambda: engine.warm() == {"conformance@1.0": 2})
        await end(engine, first, second)
        assert (await engine.running(), engine.warm()) == ({}, {"conformance@1.0": 2})
        await engine.keep_warm(spec, 0)
        await until(lambda: not engine.warm())
        assert leftovers() == []

    async def test_a_pool_that_is_full_is_left_alone(
        self, make_engine: MakeEngine, projects: Projects, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine, spec = make_engine(), projects.spec(STATEFUL)
        assert isinstance(engine, NativeEngine)
        rounds, refill = 0, engine._cgroups.refill

        def counted() -> int:
            nonlocal rounds
            rounds += 1
            return refill()

        monkeypatch.setattr(engine._cgroups, "refill", counted)  # the real one works; this counts
        await engine.keep_warm(spec, 2)
        await until(lambda: engine.warm() == {"conformance@1.0": 2})
        for _ in range(200):  # in some of which a loop that never rests would come round
            await asyncio.to_thread(list)
        assert rounds <= 4  # once at the start, and once for each that was made

    async def test_one_that_has_died_meanwhile_is_not_handed_out(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool, home: Path
    ) -> None:
        engine, spec = make_engine(), projects.spec(STATEFUL)
        assert isinstance(engine, Warm)
        await engine.keep_warm(spec, 1)
        await until(lambda: engine.warm() == {"conformance@1.0": 1})
        [spare] = [int(pid) for path in groups(home) for pid in (path / "cgroup.procs").read_text().split()][:1]
        os.kill(spare, signal.SIGKILL)
        while Path(f"/proc/{spare}").exists():  # without letting the engine notice
            os.sched_yield()
        assert (await call(pool, await engine.create(spec), "about"))["pid"] == 1
        await end(engine, spec)


class TestFreezing:
    async def test_a_frozen_instance_uses_no_cpu_and_goes_on_when_it_is_thawed(
        self, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        code = STATEFUL + SPIN
        engine, spec = make_engine(), projects.spec(code)
        assert isinstance(engine, Freeze)
        assert isinstance(engine, Measures)
        address = await engine.create(spec)
        await call(pool, address, "spin")
        before = (await engine.used([spec.id]))[spec.id].cpu_seconds
        await untilled(lambda: engine.used([spec.id]), lambda used: used[spec.id].cpu_seconds > before)
        await engine.freeze(spec.id)
        frozen = (await engine.used([spec.id]))[spec.id]
        asking = asyncio.create_task(call(pool, address, "note", text="late"))
        _, pending = await asyncio.wait({asking}, timeout=0.3)
        assert pending
        assert (await engine.used([spec.id]))[spec.id].cpu_seconds == frozen.cpu_seconds
        await engine.thaw(spec.id)
        assert await asking == ["late"]
        await engine.freeze(spec.id)
        await engine.destroy(spec.id)
        assert await engine.running() == {}

    async def test_only_what_runs_can_be_frozen(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        assert isinstance(engine, Freeze)
        for act in (engine.freeze, engine.thaw):
            with pytest.raises(NotFound):
                await act(new_id())


SPIN = '''

import subprocess
import sys


@register_tool
def spin() -> bool:
    """Keep a core busy."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"]).pid > 0
'''


async def end(engine: Engine, *specs: InstanceSpec) -> None:
    for spec in specs:
        await engine.destroy(spec.id)


async def until(holds: Callable[[], bool]) -> None:
    """Return when it holds: nobody tells when a pool is full."""
    async with asyncio.timeout(4):
        while not holds():
            await asyncio.sleep(0.01)


async def untilled(ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(4):
        while not holds(await ask()):
            await asyncio.sleep(0.01)


async def test_a_frozen_instance_can_be_killed(make_engine: MakeEngine, projects: Projects) -> None:
    engine = make_engine()
    assert isinstance(engine, NativeEngine)
    spec = projects.spec("")
    address = await engine.create(spec)
    await engine.freeze(spec.id)
    with os.fdopen(os.pidfd_open(address.pid)) as leader:
        os.kill(address.pid, signal.SIGKILL)  # as the end of a container does it: nobody thaws anything
        await readable(leader.fileno())
    await engine.destroy(spec.id)
