"""`compose`: an environment of several others with one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment, SyncEnvironment, compose
from aenv.base.errors import Forbidden, InvalidRequest, NotFound, Unsupported
from tests.composed_projects import part, url_of
from tests.gateways import Gateway, running_gateway
from tests.test_accounts import make_accounts

JUDGE = """
from aenv import Context, register_function, register_reward


@register_function
def list_tasks() -> list:
    return [{"id": "only", "prompt": "Ask both."}]


@register_reward
async def judge(context: Context) -> float:
    said = [await context.parts[name].call_tool("says") for name in ("left", "right")]
    return 1.0 if said == ["left", "right"] else 0.0
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    parts = [part(tmp_path, "left"), part(tmp_path, "right"), part(tmp_path, "right", "newer", "1.2.0")]
    async with running_gateway(tmp_path / "home", *parts) as running:
        yield running


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        ((), {}, "field 'parts': there is none"),
        (("left",), {"name": "Not A Name"}, "field 'name': bad environment name 'Not A Name'"),
        (("a b",), {}, "uses.0.env: bad environment 'a b'"),
        (({"as": "x"},), {}, "lacks 'env'"),
        (("left", "left@^1"), {}, "two parts are called 'left'; give one of them another name with 'as'"),
        (("left",), {"workspace": "own"}, "bad value 'own'; use 'shared'"),
        (("left",), {"project": "/nowhere"}, "field 'project': '/nowhere' is not a folder"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(given: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        compose(*given, **{"name": "both", **options})
    assert why in caught.value.message


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(TypeError, match="compose\\(\\) takes no argument 'attach'"):
        compose("left", name="both", attach="some-id")  # type: ignore[call-arg]


def test_it_is_not_for_code_inside_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AENV_INSTANCE_ID", "whole-1")
    with pytest.raises(Unsupported, match="name the parts in config\\.json, in 'uses'"):
        compose("left", name="both")


def test_a_folder_that_has_parts_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"name": "x", "version": "1.0.0", "uses": [{"env": "left"}]}')
    with pytest.raises(InvalidRequest, match="field 'project': its config\\.json has 'uses'"):
        compose("right", name="both", project=tmp_path)


@pytest.mark.slow  # instances are programs
class TestComposed:
    async def test_it_has_the_tools_of_all_and_is_pushed_once(self, gateway: Gateway) -> None:
        for _ in range(2):
            async with compose(
                "left", {"env": "right@~1.0", "as": "r"}, name="both", aenv_url=url_of(gateway)
            ) as env:
                assert isinstance(env, Environment)
                assert (await env.call_tool("says", {})).text == "left"
                assert (await env.call_tool("both/r_says", {})).text == "right"
        [version] = (await record(gateway, "both"))["versions"]
        assert version["version"].startswith("1.0.0-")
        assert (await record(gateway, f"both/{version['version']}"))["dependencies"]["parts"] == [
            "left: left@1.0.0",
            "r: right@1.0.0",
        ]

    async def test_other_parts_are_another_version(self, gateway: Gateway) -> None:
        for wanted in ("right@~1.0", "right@^1"):
            async with compose(wanted, name="one", aenv_url=url_of(gateway)) as env:
                assert (await env.call_tool("says", {})).text == ("newer" if wanted == "right@^1" else "right")
        assert len((await record(gateway, "one"))["versions"]) == 2

    async def test_a_folder_brings_rewards_and_tasks(self, gateway: Gateway, tmp_path: Path) -> None:
        (tmp_path / "own" / "src").mkdir(parents=True)
        (tmp_path / "own" / "src" / "judge.py").write_text(JUDGE)
        parts = ("left", "right@1.0.0")
        async with compose(*parts, name="judged", project=tmp_path / "own", aenv_url=url_of(gateway)) as env:
            assert [task["id"] for task in await env.call_function("list_tasks", {})] == ["only"]
            assert await env.call_reward({}) == 1.0
            assert (await env.call_tool("left_says", {})).text == "left"

    async def test_a_part_that_does_not_exist_is_named(self, gateway: Gateway) -> None:
        with pytest.raises(NotFound, match="field 'uses': the part 'middle': environment 'middle@\\^1' not found"):
            await compose("left", "middle@^1", name="both", aenv_url=url_of(gateway)).initialize()

    def test_blocking_code_takes_it_too(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="takes no further arguments"):
            SyncEnvironment(compose("left", name="both"), ttl="1h")


@pytest.mark.slow
async def test_a_blocking_program_uses_it(gateway: Gateway) -> None:
    def use() -> str:
        with SyncEnvironment(compose("left", name="both", aenv_url=url_of(gateway))) as env:
            return str(env.call_tool("says", {}).text)

    assert await asyncio.to_thread(use) == "left"


@pytest.mark.slow
async def test_a_new_name_is_private_and_one_of_another_user_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    team = await make_accounts(home)
    keys = {user: headers[0][1].removeprefix("Bearer ") for user, headers in team.items()}
    async with running_gateway(home, part(tmp_path, "left")) as gateway:
        async with compose("left", name="both", aenv_url=url_of(gateway), api_key=keys["alice"]) as env:
            assert (await env.call_tool("says", {})).text == "left"
        assert (await gateway.ask("GET", "/env/both", None, team["bob"]))[0] == 404
        with pytest.raises(Forbidden, match="field 'name': 'both' cannot be pushed"):
            await compose("left", name="both", aenv_url=url_of(gateway), api_key=keys["bob"]).initialize()


@pytest.mark.slow
async def test_what_another_user_pushed_under_this_name_is_not_run(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    team = await make_accounts(home)
    keys = {user: headers[0][1].removeprefix("Bearer ") for user, headers in team.items()}
    async with running_gateway(home, part(tmp_path, "left")) as gateway:
        async with compose("left", name="bait", aenv_url=url_of(gateway), api_key=keys["bob"]):
            await gateway.ask("PUT", "/env/bait/access", {"access": "team"}, team["bob"])
        with pytest.raises(Forbidden, match="is not yours to change"):
            await compose("left", name="bait", aenv_url=url_of(gateway), api_key=keys["alice"]).initialize()


async def record(gateway: Gateway, name: str) -> Any:
    status, reply = await gateway.ask("GET", f"/env/{name}")
    assert status == 200, reply
    return reply["data"]
