"""The native engine with makers: the suite for all engines, and what becomes of instances when a maker ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from aenv.base import mcp, wire
from aenv.base.http1 import Pool
from aenv.engines.base import Address, Engine, InstanceSpec
from aenv.engines.native import makers
from aenv.engines.native.makers import ManyCoreEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.rootfs import Rootfs
from conformance.capabilities import CapabilityConformance
from conformance.engine import EngineConformance, Leftovers, MakeEngine
from tests.gateways import make_project
from tests.native import traces

FindRoot = Callable[[InstanceSpec], Awaitable[Rootfs]]

pytestmark = pytest.mark.slow  # a maker is an interpreter of its own, and starts another


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def root_of(home: Path) -> FindRoot:
    root = host_root(home)

    async def find(spec: InstanceSpec) -> Rootfs:
        return root

    return find


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool() as pool:
        yield pool


@pytest.fixture
async def engine(home: Path, root_of: FindRoot) -> AsyncIterator[ManyCoreEngine]:
    """Every create goes to its one maker."""
    async with ManyCoreEngine(home, root_of, makers=1, crowd=0, queue=0) as engine:
        yield engine
    assert traces(home) == []


class TestManyCoreEngine(EngineConformance, CapabilityConformance):
    """The suite, with every create in a maker."""

    @pytest.fixture
    async def make_engine(self, home: Path, root_of: FindRoot) -> AsyncIterator[MakeEngine]:
        async with AsyncExitStack() as stack:

            def make() -> Engine:
                made = ManyCoreEngine(home, root_of, makers=1, crowd=0, queue=0)
                stack.push_async_exit(made)
                return made

            yield make

    @pytest.fixture
    def leftovers(self, home: Path) -> Leftovers:
        return lambda: traces(home)


def spec_of(project: Path) -> InstanceSpec:
    return InstanceSpec(wire.new_instance_id("echo"), "echo@1.0.0", project)


async def echo(pool: Pool, address: Address, text: str) -> str:
    """What the tool says."""
    response = await pool.request(address.origin, "POST", "/tools/echo", (), mcp.dumps({"text": text}))
    said: str = mcp.loads(await response.read())["data"]["content"][0]["text"]
    return said


def maker_pids() -> list[int]:
    """The makers of this process."""
    # A zombie, which the test of another file may have left, has no command line.
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child.pid for child in children if "aenv.engines.native.maker" in child.cmdline()]


async def test_creates_that_crowd_are_made_by_a_maker_and_one_alone_is_not(
    tmp_path: Path, home: Path, root_of: FindRoot, pool: Pool
) -> None:
    project = make_project(tmp_path)
    async with ManyCoreEngine(home, root_of, makers=1, crowd=1, queue=1) as engine:
        alone = await engine.create(spec_of(project))
        assert maker_pids() == []
        specs = [spec_of(project) for _ in range(4)]
        made = await asyncio.gather(*map(engine.create, specs))
        [maker] = maker_pids()
        below = {child.pid for child in psutil.Process(maker).children(recursive=True)}
        assert {address.pid for address in made} & below
        assert alone.pid not in below
        for address in made:
            assert await echo(pool, address, "hello") == "hello"
        for id in await engine.running():
            await engine.destroy(id)
    assert maker_pids() == []
    assert traces(home) == []


async def test_instances_of_a_killed_maker_live_on_and_can_be_ended(
    tmp_path: Path, home: Path, engine: ManyCoreEngine, pool: Pool
) -> None:
    project = make_project(tmp_path)
    spec = spec_of(project)
    address = await engine.create(spec)
    noticed = asyncio.create_task(engine.ended(spec.id))
    [maker] = maker_pids()
    os.kill(maker, signal.SIGKILL)
    assert await echo(pool, address, "still here") == "still here"
    other = spec_of(project)
    assert await echo(pool, await engine.create(other), "new") == "new"
    assert not noticed.done()
    os.kill(address.pid, signal.SIGKILL)
    assert await noticed
    await engine.destroy(spec.id)
    await engine.destroy(other.id)
    await engine.sweep()


async def test_a_create_whose_maker_is_killed_is_made_again(
    tmp_path: Path, engine: ManyCoreEngine, pool: Pool
) -> None:
    project = make_project(tmp_path)
    ahead = spec_of(project)
    await engine.create(ahead)
    [maker] = maker_pids()
    psutil.Process(maker).suspend()
    spec = spec_of(project)
    creating = asyncio.create_task(engine.create(spec))
    await asyncio.sleep(0)  # it has ordered
    os.kill(maker, signal.SIGKILL)
    assert await echo(pool, await creating, "again") == "again"
    for id in (spec.id, ahead.id):
        await engine.destroy(id)
    await engine.sweep()


async def test_a_maker_that_stands_still_is_ended_and_what_it_should_have_made_is_made(
    tmp_path: Path, engine: ManyCoreEngine, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makers, "_ANSWERS", 0.0)  # the wait is as long as the start may take
    project = make_project(tmp_path)
    ahead = spec_of(project)
    await engine.create(ahead)
    [maker] = maker_pids()
    psutil.Process(maker).suspend()
    spec = replace(spec_of(project), start_timeout=5.0)
    assert await echo(pool, await engine.create(spec), "here") == "here"
    assert maker not in maker_pids()
    for id in (spec.id, ahead.id):
        await engine.destroy(id)
    await engine.sweep()


async def test_a_create_that_is_given_up_leaves_nothing_in_a_maker(
    tmp_path: Path, home: Path, engine: ManyCoreEngine
) -> None:
    project = make_project(tmp_path)
    first = spec_of(project)
    await engine.create(first)
    spec = spec_of(project)
    creating = asyncio.create_task(engine.create(spec))
    await asyncio.sleep(0)
    creating.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await creating
    assert creating.cancelled()
    assert set(await engine.running()) == {first.id}
    await engine.destroy(first.id)
