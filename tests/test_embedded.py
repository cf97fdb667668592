"""Embedded mode: nothing configured, and the SDK starts a platform of the user's own."""

from __future__ import annotations

import asyncio
import os
import stat
import sys

import psutil
import pytest

from aenv import Environment
from aenv.gateway.app import gateway, serve
from aenv.models import CreateInstance
from aenv.serving.accounts import LOCAL
from aenv.settings import GatewaySettings
from tests.gateways import make_project

pytestmark = pytest.mark.slow  # a platform is started for each

CODE = """
from aenv import *

@register_tool
def pid(context: Context) -> dict:
    import os
    return {"pid": os.getpid(), "platform": os.getppid()}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with one environment; the platform that a test started there is ended with it."""
    folder = tmp_path / "h"
    make_project(folder / "envs", "my-env", code=CODE)
    monkeypatch.setenv("AENV_HOME", str(folder))
    monkeypatch.setenv("AENV_ALLOW_UNISOLATED", "1")
    yield folder
    for process in platforms(folder):
        process.terminate()
        process.wait(10)


def platforms(home) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(home / "run") in " ".join(p.info["cmdline"] or [])]


async def test_the_first_environment_starts_a_platform_that_the_next_one_shares(home):
    async def use() -> dict:
        async with Environment("my-env@1.0.0") as env:
            return (await env.call_tool("pid")).structured

    first, second = await use(), await use()
    assert first["pid"] != second["pid"]
    assert first["platform"] == second["platform"]
    (platform,) = platforms(home)
    assert platform.pid == first["platform"]


async def test_two_programs_that_start_at_once_start_one_platform(home):
    script = (
        "import asyncio\nfrom aenv import Environment\n"
        "async def main():\n    async with Environment('my-env') as env:\n"
        "        print((await env.call_tool('pid')).structured['platform'])\nasyncio.run(main())"
    )
    programs = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
        for _ in range(3)
    ]
    said = [(await program.communicate())[0] for program in programs]
    assert len(set(said)) == 1
    assert said[0].strip().isdigit()


async def test_the_platform_is_no_child_of_the_program_and_opens_no_port(home):
    async with Environment("my-env") as env:
        await env.list_tools()
        (platform,) = platforms(home)
        assert platform.ppid() != os.getpid()
        assert [connection.laddr for connection in platform.net_connections("inet")] == []
        mode = stat.S_IMODE((home / "run" / "platform.sock").stat().st_mode)
        assert mode == 0o600


async def test_a_platform_that_was_killed_is_started_again(home):
    async with Environment("my-env") as env:
        first = (await env.call_tool("pid")).structured["platform"]
    psutil.Process(first).kill()
    async with Environment("my-env") as env:
        assert (await env.call_tool("pid")).structured["platform"] != first


async def test_a_gateway_ends_after_its_time_without_instances(tmp_path):
    await serve(GatewaySettings(port=0, data_port=0, home=tmp_path / "h", idle_exit=0.01))


async def test_a_gateway_is_not_idle_while_it_has_an_instance(tmp_path):
    project = make_project(tmp_path, "my-env", code=CODE)
    settings = GatewaySettings(port=0, data_port=0, home=tmp_path / "h", projects=(project,))
    async with gateway(settings) as (_, made):
        record = await made.creations.create(CreateInstance(env_name="my-env"), LOCAL)
        idle = asyncio.ensure_future(made.idle(0))
        await asyncio.wait({idle}, timeout=0)
        assert not idle.done()
        await made.instances.delete(record.id)
        await idle
