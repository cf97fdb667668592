"""A model for commands in a sidecar: they ask it as the main part does, without its key and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from tests.command_line import Server, serving
from tests.gateways import make_project
from tests.native import traces
from tests.streaming_models import completion, streaming_model

pytestmark = pytest.mark.slow  # gateways with instances of two parts

KEY = "sk-the-real-key-of-the-server"
CODE = '''
import os
import urllib.request

from aenv import Sidecar, register_tool

ASK = """
import json, os, sys, urllib.request

head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
body = json.dumps({"model": "m", "messages": []}).encode()
with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=20) as reply:
    sys.stdout.write(reply.read().decode())
"""


@register_tool
async def inside(sidecar: Sidecar) -> str:
    """Ask the model from the sidecar."""
    done = await sidecar.exec(["python3", "-c", ASK], timeout=30)
    return done.stdout or done.stderr


@register_tool
async def shell(command: str, sidecar: Sidecar) -> str:
    """Run a command in the sidecar."""
    done = await sidecar.exec(command, timeout=30)
    return done.stdout + done.stderr


@register_tool
def main_part() -> str:
    """Ask the model from the main part."""
    names: dict = {}
    import contextlib, io

    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(ASK, names)
    return said.getvalue()
'''


def url_of(server: Server) -> str:
    *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
    return line.partition("=")[2]


def gateway(project: Path, home: Path, *options: str) -> Any:
    ports = ("--port", "0", "--data-port", "0", "--log-level", "WARNING", "--model-url", "loopback")
    return serving("serve", project, "--engine", "native", "--home", home, *ports, *options)


@pytest.fixture(scope="module", params=["none", "full"])
def network(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def project(network: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(network)
    return make_project(folder, "two", code=CODE, network=network, sidecar="host")


@pytest.fixture(scope="module")
def served(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("sidecars") / "home"
    with gateway(project, home) as server:
        yield url_of(server)
    assert traces(home) == []


async def test_a_command_asks_the_model_and_never_sees_its_key(served: str) -> None:
    async with streaming_model(completion("from the sidecar"), completion("from the main part")) as model:
        options: Any = {"aenv_url": served, "model_url": model.url, "model_key": KEY}
        async with Environment("two@1.0.0", **options) as env:
            assert "from the sidecar" in (await env.call_tool("inside")).text
            assert "from the main part" in (await env.call_tool("main_part")).text
            seen = (await env.call_tool("shell", {"command": "env; cat /proc/*/environ /proc/*/cmdline"})).text
        assert KEY not in seen
        assert [one.headers["authorization"] for one in model.asked] == [f"Bearer {KEY}"] * 2


async def test_a_sidecar_whose_instance_has_no_model_has_no_relay(served: str) -> None:
    async with Environment("two@1.0.0", aenv_url=served) as env:
        seen = (await env.call_tool("shell", {"command": "env"})).text
    assert "AENV_INSTANCE_ID" in seen
    assert "OPENAI_" not in seen and "ANTHROPIC_" not in seen


async def test_the_relay_of_a_sidecar_goes_on_after_the_gateway_was_started_again(
    project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with streaming_model(completion("one"), completion("two")) as model:
        with gateway(project, home, "--keep-instances") as server:
            options: Any = {"aenv_url": url_of(server), "model_url": model.url, "model_key": KEY}
            env = Environment("two@1.0.0", **options)
            await env.initialize()
            before = json.loads((await env.call_tool("inside")).text)
            id = env.instance_id
        with gateway(project, home) as server:  # which ends what is left
            again = Environment("two@1.0.0", aenv_url=url_of(server), attach=id)
            after = json.loads((await again.call_tool("inside")).text)
            await again.release()
    said = [one["choices"][0]["message"]["content"] for one in (before, after)]
    assert said == ["one", "two"]
    assert traces(home) == []
