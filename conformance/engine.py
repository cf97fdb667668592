"""What every engine must do. A test module subclasses `EngineConformance` and says how its engine is made.

    class TestMyEngine(EngineConformance):
        @pytest.fixture
        def make_engine(self, tmp_path):
            return lambda: MyEngine(tmp_path)

        @pytest.fixture
        def leftovers(self):
            return lambda: [...]          # whatever an instance could have left on this machine

Instances are real: their code is the small environment below, run by the real runtime.
"""

from __future__ import annotations

import asyncio
import os
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aenv.base import mcp, wire
from aenv.base.errors import Conflict, NetworkError, StartFailed
from aenv.base.http1 import Pool
from aenv.engines import base
from aenv.engines.base import Address, Engine, InstanceSpec, NoticesEnds

ENVIRONMENT = '''
import os
import signal
import subprocess
import sys
from pathlib import Path

from aenv import register_tool


@register_tool
def seen() -> dict:
    """What the instance was given."""
    return {"arguments": sys.argv[1:], "variables": dict(os.environ), "folder": os.getcwd()}


@register_tool
def note(name: str) -> list[str]:
    """Leave a file in the workspace, and list all that are there."""
    Path(name).touch()
    return sorted(entry.name for entry in Path(".").iterdir())


@register_tool
def start_others() -> list[int]:
    """Start processes, deaf to SIGTERM, that would stay: one that moved to a session of its own, one to a
    group of its own without any variables, and one that did not move."""
    deaf = ["/bin/sh", "-c", "trap '' TERM; sleep 3600"]
    children = [subprocess.Popen(deaf), subprocess.Popen(deaf, env={}, process_group=0)]
    children.append(subprocess.Popen(deaf, start_new_session=True))
    return [child.pid for child in children]


@register_tool
def die() -> None:
    """End like a crash."""
    os.abort()
'''
BROKEN = 'print("about to fail")\nraise RuntimeError("the database is missing")\n'
MUTE = 'import os\nprint("leaving early", flush=True)\nos._exit(3)\n'
# Opening the pipe is how the test learns that the instance's code runs; it never becomes ready.
NEVER_READY = """
import os, time
os.close(os.open({pipe!r}, os.O_WRONLY))
time.sleep(3600)
"""
# The same where the instance sees nothing of the host but its storage.
NEVER_READY_INSIDE = """
import os, time
os.close(os.open(os.path.join(os.environ["AENV_STORAGE"], "pipe"), os.O_WRONLY))
time.sleep(3600)
"""

MakeEngine = Callable[[], Engine]
Leftovers = Callable[[], list[str]]


class Projects:
    """Makes project folders, and specs for instances of them."""

    def __init__(self, folder: Path) -> None:
        self.ids: list[str] = []
        self._folder = folder
        folder.mkdir()

    def spec(self, code: str = ENVIRONMENT, **changes: Any) -> InstanceSpec:
        id = wire.new_instance_id("conformance")
        self.ids.append(id)
        source = self._folder / id / "src"
        source.mkdir(parents=True)
        (source / "environment.py").write_text(textwrap.dedent(code))
        return InstanceSpec(**{"id": id, "environment": "conformance@1.0", "project": source.parent, **changes})

    def never_ready(self, **changes: Any) -> tuple[InstanceSpec, Path]:
        """A spec that never becomes ready, and a pipe on which its code says that it runs."""
        storage = self._folder / wire.new_instance_id("storage")
        storage.mkdir()
        os.mkfifo(storage / "pipe")
        return self.spec(NEVER_READY_INSIDE, storage=storage, **changes), storage / "pipe"


async def opened(pipe: Path) -> None:
    """Return when somebody has opened `pipe` for writing."""
    os.close(await asyncio.to_thread(os.open, pipe, os.O_RDONLY))


async def call(pool: Pool, address: Address, tool: str, **arguments: Any) -> Any:
    """The structured result of a tool."""
    response = await pool.request(address.origin, "POST", f"/tools/{tool}", (), mcp.dumps(arguments))
    reply = mcp.loads(await response.read())
    assert reply["success"], reply
    structured = reply["data"]["structured"]
    return structured.get("result", structured)


class EngineConformance:
    """The suite. Subclasses give `make_engine` and `leftovers`."""

    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        raise NotImplementedError("say how to make an engine; each call gives a new object over the same state")

    @pytest.fixture
    def leftovers(self) -> Leftovers:
        raise NotImplementedError("say what instances have left on this machine")

    @pytest.fixture
    async def engine(
        self, make_engine: MakeEngine, projects: Projects, leftovers: Leftovers
    ) -> AsyncIterator[Engine]:
        engine = make_engine()
        yield engine
        for id in projects.ids:
            await engine.destroy(id)
        assert await engine.running() == {}
        assert leftovers() == []

    @pytest.fixture
    def projects(self, tmp_path: Path) -> Projects:
        return Projects(tmp_path / "projects")

    @pytest.fixture
    async def pool(self) -> AsyncIterator[Pool]:
        async with Pool() as pool:
            yield pool

    async def test_a_created_instance_answers_at_once(
        self, engine: Engine, projects: Projects, pool: Pool
    ) -> None:
        address = await engine.create(projects.spec())
        response = await pool.request(address.origin, "GET", "/health")
        assert response.status == 200
        assert mcp.loads(await response.read())["data"]["status"] == "success"

    async def test_create_tells_the_tools(self, engine: Engine, projects: Projects) -> None:
        address = await engine.create(projects.spec())
        assert {tool["name"] for tool in address.tools} == {"seen", "note", "start_others", "die"}
        assert all("inputSchema" in tool for tool in address.tools)

    async def test_arguments_and_variables_arrive(self, engine: Engine, projects: Projects, pool: Pool) -> None:
        spec = projects.spec(arguments=("--x", "two words", "--"), environment_variables={"COLOUR": "blue=ish"})
        seen = await call(pool, await engine.create(spec), "seen")
        assert seen["arguments"] == ["--x", "two words", "--"]
        assert seen["variables"]["COLOUR"] == "blue=ish"
        assert seen["variables"]["AENV_INSTANCE_ID"] == spec.id
        assert seen["variables"]["AENV_ENVIRONMENT"] == "conformance@1.0"

    async def test_variables_of_the_engine_stay_with_the_engine(
        self, engine: Engine, projects: Projects, pool: Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AENV_API_KEY", "not for instances")
        monkeypatch.setenv("CLOUD_PASSWORD", "not for instances")
        seen = await call(pool, await engine.create(projects.spec()), "seen")
        assert "not for instances" not in seen["variables"].values()

    async def test_instances_do_not_share_a_workspace(
        self, engine: Engine, projects: Projects, pool: Pool
    ) -> None:
        first, second = await asyncio.gather(engine.create(projects.spec()), engine.create(projects.spec()))
        assert await call(pool, first, "note", name="first") == ["first"]
        assert await call(pool, second, "note", name="second") == ["second"]

    async def test_a_project_that_fails_to_load_fails_the_start_with_its_traceback(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        with pytest.raises(StartFailed, match="the database is missing") as caught:
            await engine.create(projects.spec(BROKEN))
        assert "environment.py" in caught.value.message
        assert leftovers() == []

    async def test_a_process_that_ends_before_it_is_ready_fails_the_start_with_what_it_printed(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        with pytest.raises(StartFailed, match="leaving early"):
            await engine.create(projects.spec(MUTE))
        assert leftovers() == []

    async def test_the_start_timeout_ends_what_never_becomes_ready(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec, _ = projects.never_ready(start_timeout=0.5)
        with pytest.raises(StartFailed, match=r"not ready within 0\.5 s"):
            await engine.create(spec)
        assert leftovers() == []

    async def test_a_cancelled_create_leaves_nothing(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec, pipe = projects.never_ready()
        creation = asyncio.create_task(engine.create(spec))
        await opened(pipe)
        assert leftovers() != []
        creation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creation
        assert leftovers() == []

    async def test_a_create_that_is_cancelled_again_while_it_ends_leaves_nothing(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec, pipe = projects.never_ready()
        creation = asyncio.create_task(engine.create(spec))
        await opened(pipe)
        while not creation.done():
            creation.cancel()
            await asyncio.sleep(0)
        assert leftovers() == []

    async def test_an_instance_can_be_destroyed_while_it_starts(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec, pipe = projects.never_ready()
        creation = asyncio.create_task(engine.create(spec))
        await opened(pipe)
        await engine.destroy(spec.id)
        with pytest.raises(StartFailed):
            await creation
        assert leftovers() == []

    async def test_an_id_is_made_only_once(self, engine: Engine, projects: Projects, pool: Pool) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        with pytest.raises(Conflict, match=spec.id):
            await engine.create(spec)
        assert await call(pool, address, "note", name="unharmed") == ["unharmed"]

    async def test_destroy_can_be_repeated_and_takes_unknown_ids(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec = projects.spec()
        await engine.create(spec)
        await engine.destroy(spec.id)
        await engine.destroy(spec.id)
        await engine.destroy(wire.new_instance_id("unknown"))
        assert leftovers() == []

    async def test_every_one_of_many_destroys_returns_when_the_instance_is_gone(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec = projects.spec()
        await engine.create(spec)

        async def destroy() -> list[str]:
            await engine.destroy(spec.id)
            return leftovers()

        assert await asyncio.gather(*(destroy() for _ in range(5))) == [[]] * 5

    async def test_a_destroy_that_is_cancelled_does_not_stop_another(
        self, engine: Engine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec = projects.spec()
        await engine.create(spec)
        first, second = (asyncio.create_task(engine.destroy(spec.id)) for _ in range(2))
        await asyncio.sleep(0)  # one turn, in which they begin
        first.cancel()
        await second
        assert leftovers() == []

    async def test_destroy_ends_everything_that_the_instance_started(
        self, engine: Engine, projects: Projects, pool: Pool, leftovers: Leftovers
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        assert len(await call(pool, address, "start_others")) == 3
        await engine.destroy(spec.id)
        assert leftovers() == []

    async def test_destroy_ends_what_outlived_the_instance(
        self, engine: Engine, projects: Projects, pool: Pool, leftovers: Leftovers
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        await call(pool, address, "start_others")
        with pytest.raises(NetworkError):
            await call(pool, address, "die")
        await engine.destroy(spec.id)
        assert leftovers() == []

    async def test_another_engine_object_finds_and_ends_the_instance(
        self, engine: Engine, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        spec = projects.spec()
        made = await engine.create(spec)
        other = make_engine()
        assert await other.running() == {spec.id: made}
        await other.destroy(spec.id)
        assert await other.running() == {}
        assert await engine.running() == {}
        await engine.destroy(spec.id)

    async def test_an_instance_that_starts_is_not_running_yet_and_is_left_alone(
        self, engine: Engine, make_engine: MakeEngine, projects: Projects, leftovers: Leftovers
    ) -> None:
        spec, pipe = projects.never_ready()
        creation = asyncio.create_task(engine.create(spec))
        await opened(pipe)
        before = leftovers()
        for asked in (engine, make_engine()):
            assert await asked.running() == {}
            if isinstance(asked, base.Leftovers):
                assert await asked.leftovers() == [spec.id]
        assert set(before) <= set(leftovers())
        creation.cancel()
        await asyncio.wait({creation})

    async def test_an_instance_that_has_ended_is_not_running_and_is_left_alone(
        self, engine: Engine, projects: Projects, pool: Pool, leftovers: Leftovers
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        await call(pool, address, "start_others")
        with pytest.raises(NetworkError):
            await call(pool, address, "die")
        if isinstance(engine, NoticesEnds):
            await engine.ended(spec.id)
        other = projects.spec()
        before = leftovers()
        await engine.create(other)
        assert list(await engine.running()) == [other.id]
        if isinstance(engine, base.Leftovers):
            assert await engine.leftovers() == [spec.id]
        assert set(before) <= set(leftovers())

    async def test_the_end_of_an_instance_is_noticed_by_whoever_asks(
        self, engine: Engine, make_engine: MakeEngine, projects: Projects, pool: Pool
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        watchers = [watcher for watcher in (engine, make_engine()) if isinstance(watcher, NoticesEnds)]
        if not watchers:
            pytest.skip(f"the {engine.name} engine does not notice ends")
        waiting = [asyncio.create_task(watcher.ended(spec.id)) for watcher in watchers]
        assert await call(pool, address, "note", name="alive") == ["alive"]
        assert not any(task.done() for task in waiting)
        with pytest.raises(NetworkError):
            await call(pool, address, "die")
        assert all(await asyncio.gather(*waiting))

    async def test_an_instance_that_kills_itself_harms_nobody_else(
        self, engine: Engine, projects: Projects, pool: Pool
    ) -> None:
        victim, bystander = projects.spec(), projects.spec()
        address = await engine.create(victim)
        other = await engine.create(bystander)
        with pytest.raises(NetworkError):
            await call(pool, address, "die")
        assert await call(pool, other, "note", name="fine") == ["fine"]
        await engine.create(projects.spec())
