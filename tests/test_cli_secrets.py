"""`aenv secret`, and the commands that take a secret by its name, against a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.command_line import AENV
from tests.gateways import Gateway, make_project, running_gateway
from tests.test_cli_instances import Shell
from tests.test_secrets import CODE, digest

pytestmark = pytest.mark.slow  # each test runs several commands


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=CODE)) as running:
        yield running


@pytest.fixture
def shell(gateway: Gateway, tmp_path: Path) -> Shell:
    return Shell(gateway, tmp_path)


async def test_a_secret_is_set_from_a_pipe_listed_and_removed(shell: Shell) -> None:
    done = await shell.run("secret", "set", "OPENAI", stdin="a secret value\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "set the secret 'OPENAI'; running instances keep the old value\n"
    [listed] = json.loads(await shell("secret", "list", "--json"))
    assert (listed["name"], "value" in listed) == ("OPENAI", False)
    header, row = (await shell("secret", "list")).splitlines()
    assert header.split() == ["Name", "Created", "Updated"]
    assert row.startswith("OPENAI ")
    await shell("secret", "rm", "OPENAI")
    assert (await shell.run("secret", "list")).stderr == "no secrets; create one with 'aenv secret set NAME'\n"
    done = await shell.run("secret", "rm", "OPENAI")
    assert (done.returncode, done.stderr.splitlines()[0][:37]) == (1, "aenv: secret 'OPENAI' not found; 'aen")


async def test_the_value_is_not_an_argument_and_not_empty(shell: Shell) -> None:
    assert (await shell.run("secret", "set", "OPENAI", "a value")).returncode == 2
    done = await shell.run("secret", "set", "OPENAI", stdin="\n")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "aenv: the value is empty")
    assert (await shell.run("secret", "set", "a/b", stdin="x")).returncode == 1


async def test_at_a_terminal_the_value_is_asked_for_and_not_echoed(gateway: Gateway, shell: Shell) -> None:
    def typed() -> str:
        ours, theirs = os.openpty()
        command = [AENV, "secret", "set", "OPENAI"]
        said = b""
        with subprocess.Popen(command, env=shell.env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            while b"Value: " not in said:
                said += os.read(ours, 1024)
            os.write(ours, b"typed by hand\n")
            while b"set the secret" not in said:
                said += os.read(ours, 1024)
            assert process.wait() == 0
        os.close(ours)
        return said.decode()

    assert "typed by hand" not in await asyncio.to_thread(typed)
    made = await gateway.create(environment_variables={"KEY": {"secret": "OPENAI"}})
    assert await gateway.call(made["id"], "digest") == digest("typed by hand")


async def test_an_instance_and_a_service_take_it_by_its_name(gateway: Gateway, shell: Shell) -> None:
    await shell("secret", "set", "OPENAI", stdin="a secret value\r\n")
    made = await shell.created("--secret", "KEY=OPENAI")
    assert await gateway.call(made["id"], "digest") == digest("a secret value")
    done = await shell.run("instance", "create", "echo", "--secret", "KEY=NONE")
    assert done.returncode == 1
    assert "make it with 'aenv secret set NONE'" in done.stderr
    service = json.loads(await shell("service", "create", "echo", "--secret", "KEY=OPENAI", "--json"))
    assert service["environment_variables"] == {"KEY": "***"}
    await shell("service", "update", service["id"], "--secret", "OTHER=OPENAI")


async def test_a_service_of_a_project_takes_the_secrets_of_its_config(gateway: Gateway, shell: Shell) -> None:
    await shell("secret", "set", "OPENAI", stdin="a secret value")
    project = shell.folder / "echo-1.0.0"
    config = json.loads((project / "config.json").read_text())
    config["deployConfig"] = {"environmentVariables": {"KEY": {"secret": "OPENAI"}, "N": 1}}
    (project / "config.json").write_text(json.dumps(config))
    shell.folder = project
    made = json.loads(await shell("service", "create", "--json"))
    assert made["environment_variables"] == {"KEY": "***", "N": "***"}
