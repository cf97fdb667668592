"""Progress: whoever waits for an instance is told what it waits for, on a terminal alone."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import aenv, environ, on_terminal
from tests.gateways import Gateway, make_project, running_gateway
from tests.task_environments import SUMS


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway with room for one instance, which is there."""
    async with running_gateway(tmp_path / "home", make_project(tmp_path), max_instances=1) as gateway:
        yield gateway, (await gateway.create())["id"]


async def until(gateway: Gateway, id: str, text: str) -> dict[str, Any]:
    """What the gateway says of an instance, once its reason contains `text`."""
    while True:
        status, reply = await gateway.ask("GET", f"/env-instance/{id}")
        if status == 200 and text in (reply["data"]["reason"] or ""):
            data: dict[str, Any] = reply["data"]
            return data
        await asyncio.sleep(0.01)


async def test_an_instance_that_waits_says_where_in_the_queue_it_stands(full: tuple[Gateway, str]) -> None:
    gateway, first = full
    id = f"echo-{'a' * 26}"
    waiting = asyncio.create_task(gateway.create(id=id, wait="60s"))
    async with asyncio.timeout(20):
        found = await until(gateway, id, "position 1 of 1 in the queue: ")
    assert found["status"] == "Creating"
    await gateway.ask("DELETE", f"/env-instance/{first}")
    made = await waiting
    assert (made["status"], made["reason"]) == ("Running", None)


async def test_a_batch_that_waits_keeps_its_ids_to_itself(full: tuple[Gateway, str]) -> None:
    gateway, first = full
    body = {"envName": "echo@1.0.0", "count": 1, "ids": [f"echo-{'c' * 26}"], "wait": "60s"}
    waiting = asyncio.create_task(gateway.ask("POST", "/env-instances", body))
    async with asyncio.timeout(20):
        await until(gateway, body["ids"][0], "position 1 of 1 in the queue: ")
        status, reply = await gateway.ask("POST", "/env-instances", body)
    assert (status, "is taken" in reply["message"]) == (409, True)
    await gateway.ask("DELETE", f"/env-instance/{first}")
    status, reply = await waiting
    assert (status, [made["id"] for made in reply["data"]]) == (200, body["ids"])


@pytest.mark.slow
async def test_a_terminal_shows_it_and_a_pipe_gets_nothing(full: tuple[Gateway, str], tmp_path: Path) -> None:
    gateway, first = full
    env = environ(AENV_SYSTEM_URL=gateway.address.url, AENV_HOME=str(tmp_path / "user"))
    create = ("instance", "create", "echo@1.0.0", "--wait", "60s")
    shown = "starting an instance of echo@1.0.0: position 1 of 1 in the queue"
    end = (shown, lambda: aenv("instance", "delete", first, "--yes", env=env) and None)
    said = await asyncio.to_thread(on_terminal, *create, env=env, columns=120, when=end)
    assert shown in said
    assert "ending the instance;" in said
    piped = await asyncio.to_thread(aenv, "instance", "create", "echo@1.0.0", env=env)
    assert piped.stderr == "ending the instance; use --keep-alive to avoid that\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (120, "starting 2 instances of echo@1.0.0: 0 of 2 ready; position 1 of 1 in the queue"),
        (50, " 0 of 2 ready; position 1 of 1 in the queue"),
    ],
)
async def test_a_batch_shows_how_many_are_ready_and_what_the_others_wait_for(
    tmp_path: Path, columns: int, shown: str
) -> None:
    async with running_gateway(tmp_path / "home", make_project(tmp_path), max_instances=2) as gateway:
        first = (await gateway.create())["id"]
        env = environ(AENV_SYSTEM_URL=gateway.address.url, AENV_HOME=str(tmp_path / "user"))
        create = ("instance", "create", "echo@1.0.0", "--count", "2", "--wait", "60s")
        end = (shown, lambda: aenv("instance", "delete", first, "--yes", env=env) and None)
        said = await asyncio.to_thread(on_terminal, *create, env=env, columns=columns, when=end)
        assert shown in said
        assert "ending the instances" in said
        piped = await asyncio.to_thread(aenv, *create, env=env)
        assert piped.stderr == "ending the instances; use --keep-alive to avoid that\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", [("eval", "sums", "--agent", "nop"), ("validate", "sums")])
async def test_an_evaluation_and_a_validation_show_what_they_wait_for(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    project = make_project(tmp_path, "sums", code=SUMS)
    async with running_gateway(tmp_path / "home", project, max_instances=1) as gateway:
        first = (await gateway.create("sums"))["id"]
        env = environ(AENV_SYSTEM_URL=gateway.address.url, AENV_HOME=str(tmp_path / "user"))
        shown = "position 1 of 1 in the queue"
        end = (shown, lambda: aenv("instance", "delete", first, "--yes", env=env) and None)
        said = await asyncio.to_thread(on_terminal, *command, env=env, columns=50, when=end)
        assert shown in said
        assert ("\nvalid\n" if command[0] == "validate" else "0.0%") in said
        piped = await asyncio.to_thread(aenv, *command, env=env)
        assert "queue" not in piped.stdout + piped.stderr
        assert "starting" not in piped.stderr


@pytest.mark.slow
async def test_beside_the_episodes_an_evaluation_shows_what_the_next_ones_wait_for(tmp_path: Path) -> None:
    project = make_project(tmp_path, "sums", code=SUMS)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "patient.py").write_text(
        f"import asyncio\n\nasync def run(env, task):\n    await asyncio.to_thread(open, {str(gate)!r})\n"
    )

    opened: list[int] = []  # while one writes, or might, every reader comes through

    def let_them_play() -> None:
        opened.append(os.open(gate, os.O_RDWR))

    async with running_gateway(tmp_path / "home", project, max_instances=1) as gateway:
        env = environ(AENV_SYSTEM_URL=gateway.address.url, AENV_HOME=str(tmp_path / "user"))
        env["PYTHONPATH"] = str(tmp_path)
        shown = "position 1 of 1 in the queue"
        words = ("eval", "sums", "--agent", "patient:run")
        said = await asyncio.to_thread(on_terminal, *words, env=env, columns=50, when=(shown, let_them_play))
        assert re.search(rf"0/2 *\n[^\n]*{shown}", said)
        assert "100.0%" not in said
    os.close(*opened)


@pytest.mark.slow
async def test_requirements_that_are_installed_are_shown(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[project]\nname = "tiny"\nversion = "1"\n[build-system]\nrequires = []\nbuild-backend = "slow"\n'
        'backend-path = ["."]\n'
    )
    gate = tmp_path / "gate"
    (package / "slow.py").write_text(f"""
import os, sys
from pathlib import Path

def build_wheel(*_, **__):
    print("compiling", file=sys.stderr, flush=True)
    open({str(gate)!r}).read()  # a pipe that the test opens when it has seen enough
    sys.exit("that is enough")
""")
    os.mkfifo(gate)
    (project / "requirements.txt").write_text(f"tiny @ file://{package}\n")
    async with running_gateway(tmp_path / "home", project) as gateway:
        id = f"echo-{'b' * 26}"
        asked = asyncio.create_task(gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo@1.0.0"}))
        try:
            async with asyncio.timeout(20):
                await until(gateway, id, "installing requirements")
        finally:
            (await asyncio.to_thread(gate.open, "w")).close()
        status, reply = await asked
    assert status != 200
    assert "that is enough" in reply["message"]
