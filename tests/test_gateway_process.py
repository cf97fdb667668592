"""The gateway as a process: where it listens, what it refuses to start with, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import Origin
from aenv.base.errors import AEnvError, Conflict, Forbidden, InvalidRequest, NetworkError
from aenv.base.http1 import Pool
from aenv.control.gateway.gateway_app import GatewayAddress
from conformance.engine import NEVER_READY, opened
from tests.gateways import (
    Gateway,
    instance_processes,
    leftovers,
    make_project,
    running_gateway,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Opened by an instance that never becomes ready, when its code runs."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


async def test_a_socket_serves_control_and_data_for_its_owner_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for a path that is short enough for a socket
    path = Path("g.sock")
    async with running_gateway(home, make_project(tmp_path), socket=path) as gateway:
        local = Origin("localhost", socket=str(path))
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        status, reply = await gateway.ask("POST", "/env-instance", {"envName": "echo"}, origin=local)
        assert status == 200
        assert reply["data"]["mcp_url"] == f"/instances/{reply['data']['id']}/mcp"
        target = f"/instances/{reply['data']['id']}/tools/echo"
        status, reply = await gateway.ask("POST", target, {"text": "local"}, origin=local)
        assert reply["data"]["content"][0]["text"] == "local"
        with pytest.raises(Conflict, match="another gateway"):
            async with running_gateway(home, socket=path):
                pass
        assert "g.sock" in os.listdir()
    assert "g.sock" not in os.listdir()


async def test_a_dead_socket_is_replaced_and_any_other_file_left_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind("dead.sock")
    dead.close()
    async with running_gateway(home, socket=Path("dead.sock")) as gateway:
        local = Origin("localhost", socket="dead.sock")
        assert (await gateway.ask("GET", "/health", origin=local))[0] == 200
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(Conflict, match=r"notes\.txt"):
        async with running_gateway(home, socket=Path("notes.txt")):
            pass
    assert (tmp_path / "notes.txt").read_text() == "precious"


async def test_a_host_that_others_can_reach_is_refused_unless_insecure(home: Path) -> None:
    with pytest.raises(Forbidden, match=r"'0\.0\.0\.0'.*--insecure"):
        async with running_gateway(home, host="0.0.0.0"):
            pass
    async with running_gateway(home, host="0.0.0.0", insecure=True) as gateway:
        local = Origin("127.0.0.1", gateway.address.port)
        assert (await gateway.ask("GET", "/health", origin=local))[0] == 200


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"engine": "rocket"}, InvalidRequest, "no engine 'rocket'"),
        ({"port": "taken"}, Conflict, r"cannot listen on '127\.0\.0\.1:\d+': address already in use$"),
    ],
)
async def test_a_gateway_that_cannot_start_says_why(
    home: Path, settings: dict[str, Any], kind: type[AEnvError], message: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if "port" in settings:
            settings = {"port": taken.getsockname()[1]}
        with pytest.raises(kind, match=message):
            async with running_gateway(home, **settings):
                pass


async def test_projects_in_the_home_folder_are_registered_and_broken_ones_left_out(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_project(home / "envs", "homely")
    (home / "envs" / "empty").mkdir()
    make_project(home / "envs", "echo")
    async with running_gateway(home, make_project(tmp_path, "echo")) as gateway:
        assert (await gateway.create("homely"))["status"] == "Running"
    assert "no config.json" in caplog.text
    assert "echo@1.0.0 is registered from" in caplog.text
    with pytest.raises(InvalidRequest, match="no config"):
        async with running_gateway(home, home / "envs" / "empty"):
            pass


async def test_a_stop_ends_instances_creations_and_open_calls(home: Path, tmp_path: Path, pipe: Path) -> None:
    projects = make_project(tmp_path), make_project(tmp_path, "slow", code=NEVER_READY.format(pipe=str(pipe)))
    async with running_gateway(home, *projects) as gateway:
        instance = await gateway.create()
        asking = asyncio.create_task(gateway.create("slow"))
        await opened(pipe)
        hanging = asyncio.create_task(gateway.call(instance["id"], "hang"))
        await gateway.call(instance["id"], "echo", text="the call before has arrived")
        assert len(instance_processes(home)) == 2
    assert leftovers(home) == []
    outcomes = await asyncio.gather(asking, hanging, return_exceptions=True)
    assert all(isinstance(outcome, AssertionError | NetworkError) for outcome in outcomes)


PROGRAM = """
import json
import sys
from pathlib import Path
from aenv.control.gateway.gateway_app import run
from aenv.base.settings import GatewaySettings

home, settings, *projects = sys.argv[1:]
run(
    GatewaySettings(
        port=0, data_port=0, home=Path(home), projects=tuple(map(Path, projects)), **json.loads(settings)
    ),
    lambda address: print(address.port, address.data_port, flush=True),
)
"""


class Program:
    """A gateway in a process of its own, on uvloop, as `aenv serve` runs it."""

    def __init__(self, home: Path, *projects: Path, **settings: Any) -> None:
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(home),
            json.dumps({"engine": "process", **settings}),
            *map(str, projects),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self, pool: Pool, home: Path) -> Gateway:
        assert self._process.stdout
        line = await asyncio.to_thread(self._process.stdout.readline)
        port, data_port = map(int, line.split())
        return Gateway(GatewayAddress("127.0.0.1", port, data_port), pool, home)

    async def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        code = await asyncio.to_thread(self._process.wait)
        if self._process.stdout:
            self._process.stdout.close()
        return code


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_gateway_and_its_instances(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    program = Program(home, make_project(tmp_path))
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        instance = await gateway.create()
        assert await gateway.call(instance["id"], "echo", text="on uvloop") == "on uvloop"
        assert len(leftovers(home)) == 2
        assert await program.end(number) == 0
    assert leftovers(home) == []


@pytest.mark.slow
async def test_what_a_killed_gateway_left_is_taken_over_by_the_next(home: Path, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    program = Program(home, project)
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        one, other = await asyncio.gather(gateway.create(), gateway.create())
        await program.end(signal.SIGKILL)
    assert len(instance_processes(home)) == 2
    async with running_gateway(home, project) as gateway:
        assert await gateway.call(one["id"], "echo", text="still here") == "still here"
        by_token = [("authorization", f"Bearer {other['token']}")]  # signed by the one that was killed
        assert (await gateway.ask("GET", "/health", headers=by_token, origin=gateway.data))[0] == 200
        assert (await gateway.ask("DELETE", f"/env-instance/{one['id']}"))[0] == 200
        assert len(instance_processes(home)) == 1


@pytest.mark.slow
async def test_a_second_gateway_on_the_same_home_leaves_the_first_ones_instances_alone(
    home: Path, tmp_path: Path
) -> None:
    project = make_project(tmp_path)
    program = Program(home, project)
    async with Pool() as pool:
        gateway = await program.ready(pool, home)
        instance = await gateway.create()
        second = Program(home, project)
        await second.ready(pool, home)
        assert await second.end(signal.SIGTERM) == 0
        assert await gateway.call(instance["id"], "echo", text="still here") == "still here"
        assert await program.end(signal.SIGTERM) == 0
    assert leftovers(home) == []
