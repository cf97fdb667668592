"""Embedded mode: nothing configured, and the SDK starts a platform of the user's own."""

from __future__ import annotations

import asyncio
import os
import stat
import sys

import psutil
import pytest
from starlette.responses import Response

from aenv import Environment, __version__
from aenv.base.addresses import Origin
from aenv.base.errors import EnvironmentError, NotFound
from aenv.base.http1 import Pool
from aenv.base.models import CreateInstance
from aenv.base.settings import ClientSettings
from aenv.client import embedded
from aenv.client.api import Api
from aenv.control.gateway.gateway_app import gateway, serve
from aenv.control.gateway.parts import Shared
from aenv.control.serving import envelope
from aenv.control.serving.accounts import LOCAL
from aenv.isolation.sandbox import probe
from tests.gateways import gateway_settings, make_project
from tests.platforms import end_platforms, platforms

pytestmark = pytest.mark.slow  # a platform is started for each

MISSING = "no user namespaces: the host forbids them; ask it to allow them"
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
    monkeypatch.setattr(probe, "missing_isolation", lambda: MISSING)
    yield folder
    end_platforms(folder)


async def test_the_first_environment_starts_a_platform_that_the_next_one_shares(home):
    async def use() -> dict:
        async with Environment("my-env@1.0.0") as env:
            return (await env.call_tool("pid")).structured

    first, second = await use(), await use()
    assert first["pid"] != second["pid"]
    assert first["platform"] == second["platform"]
    (platform,) = platforms(home)
    assert platform.pid == first["platform"]


async def test_calls_do_not_pass_the_platform(home):
    async with Environment("my-env@1.0.0") as env, Pool() as pool:
        await env.call_tool("pid")
        platform = Origin("localhost", socket=str(home / "run" / "platform.sock"))
        response = await pool.request(platform, "GET", "/metrics")
        text = (await response.read()).decode()
        assert 'operation="create"' in text
        assert "aenv_api_mcp_requests_total{" not in text


async def test_two_programs_that_start_at_once_start_one_platform(home):
    script = (
        "import asyncio\nfrom aenv import Environment\nfrom aenv.isolation.sandbox import probe\n"
        "probe.missing_isolation = lambda: 'this host'\n"
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


async def test_an_environment_that_the_platform_does_not_have_is_pushed_or_run(home):
    with pytest.raises(NotFound) as raised:
        await Environment("bee-env@1.0.0").initialize()
    first, fix = raised.value.message.split(". ", 1)
    assert first == "environment 'bee-env@1.0.0' not found; the hub has nothing of a similar name"  # but "my-env"
    assert "'aenv push'" in fix and "DUMMY_INSTANCE_IP" in fix


async def test_a_platform_that_was_killed_is_started_again(home):
    async with Environment("my-env") as env:
        first = (await env.call_tool("pid")).structured["platform"]
    psutil.Process(first).kill()
    async with Environment("my-env") as env:
        assert (await env.call_tool("pid")).structured["platform"] != first


@pytest.mark.parametrize("health", [{"status": "healthy"}, {"status": "healthy", "version": "0.9.0"}])
async def test_a_platform_of_another_version_goes_on_beside_one_of_this_version(home, monkeypatch, health):
    async def earlier(self: Shared, call: object) -> Response:
        return envelope.success(health)

    monkeypatch.setattr(Shared, "_health", earlier)  # as earlier builds answer; here in this process alone
    usual = home / "run" / "platform.sock"
    usual.parent.mkdir(parents=True)
    async with gateway(gateway_settings(home, socket=usual, port=None, data_port=None)) as (_, made):
        record = await made.creator.create(CreateInstance(env_name="my-env"), LOCAL)
        for _ in range(2):  # the second program finds the one that the first has started
            async with Environment("my-env") as env:
                started = psutil.Process((await env.call_tool("pid")).structured["platform"])
                assert str(home / "run" / f"platform-{__version__}.sock") in started.cmdline()
                # Both know of all instances, and none was ended.
                origin = await embedded.platform(ClientSettings(home=home, allow_unisolated=True), 10.0)
                async with Api(origin) as api:
                    assert {each.id for each in await api.list_instances()} == {record.id, env.instance_id}
        assert made.supervisor[record.id].is_live
        assert usual.is_socket()
    assert len(platforms(home)) == 1


@pytest.mark.parametrize(
    ("missing", "allowed", "engine"),
    [(None, False, "native"), (None, True, "native"), (MISSING, True, "process")],
)
async def test_isolation_is_given_up_only_where_there_is_none_and_that_is_allowed(
    home, monkeypatch, missing, allowed, engine
):
    started = []
    # In the place of a platform of its own: which engine it was to have.
    monkeypatch.setattr(embedded, "_start", lambda home, path, engine, timeout: started.append(engine))
    monkeypatch.setattr(probe, "missing_isolation", lambda: missing)
    await embedded.platform(ClientSettings(home=home, allow_unisolated=allowed), 1.0)
    assert started == [engine]


async def test_without_isolation_instances_are_refused_even_from_a_platform_that_runs(home, monkeypatch):
    async with Environment("my-env"):
        monkeypatch.delenv("AENV_ALLOW_UNISOLATED")
        with pytest.raises(EnvironmentError, match=f"{MISSING}.*AENV_ALLOW_UNISOLATED=1"):
            async with Environment("my-env"):
                pass
        # Its hub is there for everyone.
        assert await embedded.platform(ClientSettings(home=home), 1.0, instances=False)


async def test_a_datasource_here_is_named_as_the_platform_finds_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert embedded.found_by(None, "~/data") == str(tmp_path / "me" / "data")
    assert [embedded.found_by(None, given) for given in ("/data", "task-1", "")] == ["/data", "task-1", ""]
    assert Environment("e", datasource="./data")._create_body()["datasource"] == str(tmp_path / "data")
    remote = Environment("e", datasource="./data", aenv_url="http://127.0.0.1:1")
    assert remote._create_body()["datasource"] == "./data"


async def test_a_gateway_ends_after_its_time_without_instances(tmp_path):
    await serve(gateway_settings(tmp_path / "h", idle_exit=0.01))


async def test_a_gateway_is_not_idle_while_it_has_an_instance(tmp_path):
    project = make_project(tmp_path, "my-env", code=CODE)
    async with gateway(gateway_settings(tmp_path / "h", project)) as (_, made):
        record = await made.creator.create(CreateInstance(env_name="my-env"), LOCAL)
        idle = asyncio.ensure_future(made.idle(0))
        await asyncio.wait({idle}, timeout=0)
        assert not idle.done()
        await made.instances.delete(record.id)
        await idle
