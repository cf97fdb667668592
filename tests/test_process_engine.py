"""The process engine: the suite for all engines, and what only a child process can do wrong."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from aenv.base.errors import StartFailed
from aenv.base.http1 import Pool
from aenv.engines import proc
from aenv.engines.base import summary
from aenv.engines.folder import STATE, InstanceFolder
from aenv.engines.instance_state import InstanceState
from aenv.engines.process import ProcessEngine
from conformance.capabilities import CapabilityConformance
from conformance.engine import ENVIRONMENT, EngineConformance, Leftovers, MakeEngine, Projects, call, opened
from tests.instance_world import StubEngine, World

pytestmark = pytest.mark.slow  # each starts instances, which are processes

# In place of Python with the runtime.
READY_WHEN_ASKED_TO_END = """#!{python}
import os, signal, sys, time

def end(*_):
    os.write(int(sys.argv[sys.argv.index("--ready-fd") + 1]), b'{{"ready": true, "tools": []}}\\n')
    os._exit(0)

signal.signal(signal.SIGTERM, end)
os.close(os.open({pipe!r}, os.O_WRONLY))
time.sleep(3600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def make_engine(home: Path) -> MakeEngine:
    return lambda: ProcessEngine(home)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder for this test alone, short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)  # what TMPDIR sets, before its first use
        yield Path(folder)


@pytest.fixture
def leftovers(home: Path, temporary: Path) -> Leftovers:
    """Folders of instances, sockets elsewhere, and processes that carry an instance's variables."""

    def find() -> list[str]:
        folders = [str(path) for place in (home / "run" / "instances", temporary) for path in place.glob("*")]
        processes = [process for process in psutil.process_iter() if str(home) in workspace_of(process)]
        return folders + [f"process {process.pid}" for process in processes]

    return find


def workspace_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("AENV_WORKSPACE", "")
    except psutil.Error:
        return ""


def open_files(pid: int) -> list[str]:
    return [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]


class TestProcessEngine(EngineConformance, CapabilityConformance):
    @pytest.fixture
    def make_engine(self, make_engine: MakeEngine) -> MakeEngine:
        return make_engine

    @pytest.fixture
    def leftovers(self, leftovers: Leftovers) -> Leftovers:
        return leftovers

    async def test_an_instances_folder_is_private(
        self, engine: ProcessEngine, projects: Projects, home: Path
    ) -> None:
        spec = projects.spec()
        await engine.create(spec)
        folder = home / "run" / "instances" / spec.id
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    async def test_variables_are_few_and_home_is_the_workspace(
        self, engine: ProcessEngine, projects: Projects, pool: Pool
    ) -> None:
        seen = await call(pool, await engine.create(projects.spec(call_timeout=7.5)), "seen")
        variables = seen["variables"]
        assert variables["HOME"] == variables["AENV_WORKSPACE"] == seen["folder"]
        assert variables["AENV_CALL_TIMEOUT"] == "7.5"
        assert set(variables) - {"LC_CTYPE"} == {  # Python adds LC_CTYPE by itself
            "PATH",
            "LANG",
            "HOME",
            "TMPDIR",
            "AENV_INSTANCE_ID",
            "AENV_ENVIRONMENT",
            "AENV_WORKSPACE",
            "AENV_CALL_TIMEOUT",
        }

    async def test_an_instances_own_names_cannot_be_set_by_its_creator(
        self, engine: ProcessEngine, projects: Projects, pool: Pool
    ) -> None:
        spec = projects.spec(environment_variables={"AENV_INSTANCE_ID": "another", "HOME": "/nowhere"})
        seen = await call(pool, await engine.create(spec), "seen")
        assert seen["variables"]["AENV_INSTANCE_ID"] == spec.id
        assert seen["variables"]["HOME"] == "/nowhere"

    async def test_no_open_file_of_ours_reaches_the_instance(
        self, engine: ProcessEngine, projects: Projects, tmp_path: Path
    ) -> None:
        with (tmp_path / "secret").open("w") as secret:
            os.set_inheritable(secret.fileno(), True)
            address = await engine.create(projects.spec())
            held = open_files(address.pid)
        assert str(tmp_path / "secret") not in held

    async def test_a_long_home_keeps_its_sockets_in_the_temporary_folder(
        self, projects: Projects, home: Path, temporary: Path, leftovers: Leftovers, pool: Pool
    ) -> None:
        engine = ProcessEngine(home / ("long" * 30))
        spec = projects.spec()
        address = await engine.create(spec)
        assert address.origin.socket is not None
        assert address.origin.socket.startswith(str(temporary))
        assert await call(pool, address, "note", name="it") == ["it"]
        await ProcessEngine(home / ("long" * 30)).destroy(spec.id)
        await engine.destroy(spec.id)
        assert os.listdir(temporary) == []

    async def test_a_pid_that_is_used_again_is_not_an_instance(
        self, engine: ProcessEngine, make_engine: MakeEngine, projects: Projects, home: Path
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        bystander = os.getpid()
        folder = InstanceFolder(home / "run" / "instances", spec.id)
        assert folder.read_state().start_time != proc.start_time(bystander)
        folder.write_state(InstanceState(pid=bystander))
        other = make_engine()
        assert await other.running() == {}
        assert await other.leftovers() == [spec.id]
        # Would end this very process if only the pid counted.
        await other.destroy(spec.id)
        assert proc.start_time(address.pid) is None

    async def test_what_a_dead_engine_had_just_begun_is_found(
        self, engine: ProcessEngine, make_engine: MakeEngine, projects: Projects, home: Path
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        # As if it had died between starting the process and writing down its pid.
        folder = InstanceFolder(home / "run" / "instances", spec.id)
        begun = {"socket": str(folder.socket)}
        (folder.path / STATE).write_text(json.dumps(begun) + "\n")
        other = make_engine()
        assert await other.running() == {}
        assert await other.leftovers() == [spec.id]
        await other.destroy(spec.id)
        assert proc.start_time(address.pid) is None

    async def test_the_end_of_an_instance_is_noticed_with_its_reason(
        self, engine: ProcessEngine, projects: Projects
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        os.kill(address.pid, 9)
        assert await engine.ended(spec.id) == "its process was killed by signal 9"
        code = ENVIRONMENT + "import threading\nthreading.Timer(0.2, os._exit, (4,)).start()\n"
        other = projects.spec(code)
        await engine.create(other)
        assert await engine.ended(other.id) == "its process exited with code 4"

    async def test_no_process_of_an_instance_runs_on(
        self, engine: ProcessEngine, projects: Projects, pool: Pool
    ) -> None:
        spec = projects.spec()
        address = await engine.create(spec)
        others = await call(pool, address, "start_others")
        assert all(proc.start_time(pid) for pid in others)
        await engine.destroy(spec.id)
        assert [pid for pid in (address.pid, *others) if proc.start_time(pid)] == []

    async def test_an_instance_that_becomes_ready_while_it_is_destroyed_is_not_handed_out(
        self, home: Path, projects: Projects, tmp_path: Path, leftovers: Leftovers
    ) -> None:
        started = tmp_path / "started"
        os.mkfifo(started)
        stand_in = tmp_path / "python"
        stand_in.write_text(READY_WHEN_ASKED_TO_END.format(python=sys.executable, pipe=str(started)))
        stand_in.chmod(0o755)
        engine = ProcessEngine(home, python=str(stand_in))
        spec = projects.spec()
        creation = asyncio.create_task(engine.create(spec))
        await opened(started)
        await engine.destroy(spec.id)
        with pytest.raises(StartFailed, match="destroyed while it started"):
            await creation
        assert leftovers() == []

    async def test_a_python_that_is_not_there_fails_the_start(
        self, home: Path, projects: Projects, leftovers: Leftovers
    ) -> None:
        with pytest.raises(Exception, match="no-such-python") as caught:
            await ProcessEngine(home, python="/no-such-python").create(projects.spec())
        assert caught.value.code == "start_failed"
        assert leftovers() == []


def test_an_engine_is_announced_in_its_own_words_or_by_what_it_isolates(tmp_path: Path) -> None:
    engine = ProcessEngine(tmp_path)
    assert summary(engine) == engine.summary
    silent = StubEngine(World())
    assert summary(silent) == "does not isolate instances"
    silent.isolation = ("a disk", "a network")
    assert summary(silent) == "a disk, a network"
