"""What only the process engine can do wrong with logs, commands, files and ports."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from aenv.base.errors import InvalidRequest, NotFound, StartFailed
from aenv.base.http1 import Pool
from aenv.base.mcp import loads
from aenv.engines import proc
from aenv.engines.folder import STATE, InstanceFolder
from aenv.engines.process import ProcessEngine
from conformance.able import ABLE, result, whole
from conformance.engine import Projects, call
from conformance.files import breaking_off

pytestmark = pytest.mark.slow  # each starts instances, which are processes

# The first thread ends, and the process runs on in another: the system shows it as a zombie.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary folder for this test alone, short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path / "projects")


@pytest.fixture
async def engine(home: Path, projects: Projects) -> AsyncIterator[ProcessEngine]:
    engine = ProcessEngine(home)
    yield engine
    for id in projects.ids:
        await engine.destroy(id)
    assert list((home / "run" / "instances").iterdir()) == []
    assert [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE] == []


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    async with Pool() as pool:
        yield pool


@pytest.fixture
async def id(engine: ProcessEngine, projects: Projects) -> str:
    spec = projects.spec(ABLE)
    await engine.create(spec)
    return spec.id


@pytest.fixture
def folder(home: Path, id: str) -> Path:
    return home / "run" / "instances" / id


def open_files() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


# Instances, and what may be in their folders


async def test_an_id_never_leads_out_of_the_folder_of_instances(
    engine: ProcessEngine, projects: Projects, home: Path, id: str
) -> None:
    (home / "run" / "kept").touch()
    for bad in ("..", "../..", ".", "", f"{id}/..", f"../instances/{id}", f"{id}/", f"{id}\0"):
        await engine.destroy(bad)
        with pytest.raises(InvalidRequest, match="bad instance id"):
            await engine.create(projects.spec(id=bad))
    assert list(await engine.running()) == [id]
    assert (home / "run" / "kept").exists()


async def test_a_state_that_was_spoilt_from_inside_stops_nobody(
    engine: ProcessEngine, projects: Projects, home: Path, id: str, folder: Path
) -> None:
    other = projects.spec()
    await engine.create(other)
    state = InstanceFolder(folder.parent, id).read_state()
    for spoilt in ("{", "[]", "null", '{"pid": 1}', '{"pid": "1", "start_time": "x"}', '{"tools": 5}', "\ud800"):
        (folder / STATE).write_text(spoilt, errors="surrogatepass")
        assert list(await engine.running()) == [other.id]
        assert await engine.leftovers() == [id]
        with pytest.raises(NotFound):
            engine.logs(id)
    (folder / STATE).write_bytes(replace(state, socket=str(home / "elsewhere" / "socket")).line())
    (home / "elsewhere").mkdir()
    await engine.destroy(id)
    assert (home / "elsewhere").exists()


async def test_a_process_without_its_first_thread_is_ended_like_any_other(
    engine: ProcessEngine, projects: Projects
) -> None:
    with pytest.raises(StartFailed, match="not ready within"):
        await engine.create(projects.spec(HEADLESS, start_timeout=1.0))


async def test_a_very_deep_folder_can_be_removed(engine: ProcessEngine, id: str, folder: Path) -> None:
    for name in ("deep", "other"):
        (folder / "workspace" / name).mkdir()
        current = os.open(folder / "workspace" / name, os.O_RDONLY)
        for _ in range(3000):  # deeper than Python's stack, and longer than any path may be
            os.mkdir("d" * 100, dir_fd=current)
            deeper = os.open("d" * 100, os.O_RDONLY, dir_fd=current)
            os.close(current)
            current = deeper
        os.close(current)
    try:
        await engine.remove(id, "deep")
        assert [entry.path for entry in await engine.list(id)] == ["other"]
        await engine.destroy(id)
        assert not folder.exists()
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # pytest could not


async def test_a_file_that_is_not_sent_to_its_end_leaves_nothing_in_the_folder(
    engine: ProcessEngine, id: str, folder: Path
) -> None:
    before = sorted(os.listdir(folder))
    with pytest.raises(ConnectionResetError):
        await engine.put(id, "file", breaking_off(b"half of"))
    assert sorted(os.listdir(folder)) == before


async def test_an_instance_is_removed_while_a_file_is_sent(engine: ProcessEngine, id: str, folder: Path) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"first"
        await engine.destroy(id)
        yield b"second"

    with pytest.raises(NotFound):
        await engine.put(id, "file", content())
    assert not folder.exists()


async def test_a_file_is_read_as_long_as_it_was(engine: ProcessEngine, id: str, folder: Path) -> None:
    before = os.urandom(1_000_000)
    (folder / "workspace" / "growing").write_bytes(before)
    content = engine.read(id, "growing")
    first = await anext(content)
    with (folder / "workspace" / "growing").open("ab") as file:
        file.write(b"more")
    assert first + await whole(content) == before


# What an instance is told


async def test_an_instance_gets_its_requirements_its_storage_and_no_history(
    engine: ProcessEngine, projects: Projects, pool: Pool, tmp_path: Path
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "only_in_the_requirements.py").write_text("value = 42")
    code = """
        import os
        import only_in_the_requirements
        from aenv import register_tool

        @register_tool
        def look() -> dict:
            return {"value": only_in_the_requirements.value, "storage": os.environ.get("AENV_STORAGE")}
    """
    storage = tmp_path / "storages" / "one"
    spec = projects.spec(code, requirements=packages, storage=storage, keep_history=False)
    address = await engine.create(spec)
    assert await call(pool, address, "look") == {"value": 42, "storage": str(storage)}
    assert storage.stat().st_mode & 0o777 == 0o700
    response = await pool.request(address.origin, "GET", "/history")
    assert (response.status, loads(await response.read())["success"]) == (404, False)
    (storage / "kept").touch()
    await engine.destroy(spec.id)
    assert (storage / "kept").exists()
    await engine.create(projects.spec(code, requirements=packages, storage=storage))


async def test_a_storage_that_cannot_be_made_fails_the_start(
    engine: ProcessEngine, projects: Projects, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match="cannot start an instance"):
        await engine.create(projects.spec(ABLE, storage=tmp_path / "file" / "below"))


# Logs


async def test_a_log_that_is_no_file_any_more_is_not_read(engine: ProcessEngine, id: str, folder: Path) -> None:
    (folder / "log").unlink()
    (folder / "log").symlink_to("/etc/hostname")
    with pytest.raises(NotFound):
        await whole(engine.logs(id))
    (folder / "log").unlink()
    os.mkfifo(folder / "log")
    with pytest.raises(NotFound):
        await whole(engine.logs(id, follow=True))
    (folder / "log").unlink()
    with pytest.raises(NotFound, match="not found"):
        await whole(engine.logs(id))


async def test_a_followed_log_has_what_was_printed_in_the_moment_of_the_end(
    engine: ProcessEngine, projects: Projects, home: Path
) -> None:
    spec = projects.spec(ABLE)
    address = await engine.create(spec)
    log = engine.logs(spec.id, follow=True)
    await anext(log)
    following = asyncio.create_task(whole(log))
    await result(engine.exec(spec.id, ["true"]))  # meanwhile it waits for more
    # All of this between two turns of the loop, so that it learns of both at once.
    with (home / "run" / "instances" / spec.id / "log").open("ab") as file:
        file.write(b"farewell")
    os.kill(address.pid, 9)
    os.waitid(os.P_PID, address.pid, os.WEXITED | os.WNOWAIT)
    assert await following == b"farewell"


async def test_a_followed_log_ends_when_the_instance_is_destroyed(engine: ProcessEngine, id: str) -> None:
    log = engine.logs(id, follow=True)
    first = await anext(log)
    following = asyncio.create_task(whole(log))
    await engine.destroy(id)
    assert b"the environment was loaded" in first + await following


# Commands


async def test_a_command_ends_in_time_even_when_nobody_reads_it(engine: ProcessEngine, id: str) -> None:
    command = engine.exec(id, ["sh", "-c", "echo $$; exec cat /dev/zero"], timeout=0.3)
    pid = int((await anext(command)).data.split(b"\n")[0])
    await proc.ended(pid)
    assert [output.exit_code async for output in command][-1] == 124


async def test_a_command_that_was_in_time_stays_so_when_it_is_read_late(engine: ProcessEngine, id: str) -> None:
    command = engine.exec(id, ["echo", "done"], timeout=0.3)
    outputs = [await anext(command)]
    await result(engine.exec(id, ["sleep", "0.5"]))  # over in the meantime
    outputs += [output async for output in command]
    assert [output.exit_code for output in outputs] == [None, 0]


async def test_a_command_that_has_left_nothing_open(engine: ProcessEngine, id: str) -> None:
    await result(engine.exec(id, ["true"]))  # a worker thread and the like are there from now on
    before = open_files()
    await result(engine.exec(id, ["cat"], stdin=b"x" * 100_000, timeout=60))
    await result(engine.exec(id, ["no-such-command"], stdin=b"x"))
    command = engine.exec(id, ["yes"], timeout=60)
    await anext(command)
    await command.aclose()  # type: ignore[attr-defined]
    engine.exec(id, ["true"])  # and one that nobody ever asked for its output
    assert open_files() == before


async def test_a_command_for_an_instance_that_has_just_ended_is_not_found(engine: ProcessEngine, id: str) -> None:
    command = engine.exec(id, ["sleep", "3600"])
    await engine.destroy(id)
    with pytest.raises(NotFound):
        await anext(command)


async def test_a_command_that_the_end_of_its_instance_overtook_is_ended(
    engine: ProcessEngine, projects: Projects, tmp_path: Path
) -> None:
    spec = projects.spec(ABLE)
    address = await engine.create(spec)
    command = engine.exec(spec.id, ["sleep", "3600"])
    os.kill(address.pid, 9)
    await proc.ended(address.pid)  # the folder is still there, so that the command can start
    with pytest.raises(NotFound):
        await anext(command)


# Ports


async def test_a_connection_is_no_port(engine: ProcessEngine, projects: Projects, pool: Pool) -> None:
    code = (
        ABLE
        + '''
servers = []


@register_tool
def connect(port: int) -> int:
    """Connect to a server of the host; returns the port on this side."""
    servers.append(socket.create_connection(("127.0.0.1", port)))
    return servers[-1].getsockname()[1]
'''
    )
    spec = projects.spec(code)
    address = await engine.create(spec)
    with socket.create_server(("127.0.0.1", 0)) as host:
        own = await call(pool, address, "connect", port=host.getsockname()[1])
        with pytest.raises(NotFound):
            await engine.port(spec.id, own)


async def test_an_instance_cannot_have_the_hosts_own_server_reached(
    engine: ProcessEngine, projects: Projects, pool: Pool
) -> None:
    # It can listen on the same port at '::', and would get others connected to 127.0.0.1 instead.
    code = (
        ABLE
        + '''
servers = []


@register_tool
def listen_beside(port: int) -> bool:
    """Listen on a port for IPv6 only."""
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind(("::", port))
    server.listen()
    servers.append(server)
    return True
'''
    )
    spec = projects.spec(code)
    address = await engine.create(spec)
    with socket.create_server(("127.0.0.1", 0)) as host:
        port = host.getsockname()[1]
        await call(pool, address, "listen_beside", port=port)
        origin = await engine.port(spec.id, port)
        assert origin.host == "::1"
