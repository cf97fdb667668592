"""Composed environments in the hub: a push takes one version of each part, for good, and shows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment, EnvironmentError
from tests.command_line import aenv, environ
from tests.composed_projects import part, project, push, pushed, url_of
from tests.gateways import Gateway, running_gateway
from tests.test_accounts import make_accounts

OWN = """
from aenv import register_tool


@register_tool
def own() -> str:
    "Of the whole."
    return "mine"
"""


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home") as running:
        yield running


def whole(folder: Path, version: str, env: str = "speaker@^1") -> Path:
    return project(folder, "whole", OWN, version, uses=[{"env": env, "as": "it"}])


async def said(gateway: Gateway, version: str) -> str:
    """What a caller hears who calls the part, and knows nothing of it."""
    async with Environment(f"whole@{version}", aenv_url=url_of(gateway)) as env:
        return (await env.call_tool("it_says", {})).text


async def about(gateway: Gateway, version: str) -> Any:
    status, reply = await gateway.ask("GET", f"/env/whole/{version}")
    assert status == 200, reply
    return reply["data"]


@pytest.mark.slow  # instances are programs
class TestPins:
    async def test_a_later_version_of_a_part_changes_nothing_until_the_next_push(
        self, gateway: Gateway, tmp_path: Path
    ) -> None:
        await pushed(gateway, part(tmp_path, "speaker", "first"))
        await pushed(gateway, whole(tmp_path, "1.0.0"))
        await pushed(gateway, part(tmp_path, "speaker", "second", "1.1.0"))
        assert await said(gateway, "1.0.0") == "first"
        await pushed(gateway, whole(tmp_path, "1.0.1"))
        assert (await said(gateway, "1.0.0"), await said(gateway, "1.0.1")) == ("first", "second")
        assert [(await about(gateway, one))["dependencies"]["parts"] for one in ("1.0.0", "1.0.1")] == [
            ["it: speaker@1.0.0"],
            ["it: speaker@1.1.0"],
        ]

    async def test_another_implementation_takes_the_place_of_a_part_and_callers_change_nothing(
        self, gateway: Gateway, tmp_path: Path
    ) -> None:
        await pushed(gateway, part(tmp_path, "speaker", "first"))
        await pushed(gateway, part(tmp_path, "orator", "another"))
        await pushed(gateway, whole(tmp_path, "1.0.0"))
        await pushed(gateway, whole(tmp_path, "2.0.0", "orator"))
        assert (await said(gateway, "1.0.0"), await said(gateway, "2.0.0")) == ("first", "another")

    async def test_the_hub_shows_the_parts_and_all_tools(self, gateway: Gateway, tmp_path: Path) -> None:
        await pushed(gateway, part(tmp_path, "speaker"))
        await pushed(gateway, whole(tmp_path, "1.0.0"))
        names = ["own", "it_says", "it_write", "it_read", "it_folder"]
        shown = await about(gateway, "1.0.0")
        assert [tool["name"] for tool in shown["tools"]] == names
        variables = environ(AENV_HOME=str(tmp_path / "user"), HUB_BACKEND=url_of(gateway))

        done = await asyncio.to_thread(aenv, "get", "whole", cwd=tmp_path, env=variables)
        assert "it: speaker@1.0.0" in done.stdout
        assert all(name in done.stdout for name in names)
        told = await asyncio.to_thread(aenv, "get", "whole", "--json", cwd=tmp_path, env=variables)
        assert [tool["name"] for tool in json.loads(told.stdout)["tools"]] == names

    async def test_aenv_push_takes_the_versions_too(self, gateway: Gateway, tmp_path: Path) -> None:

        await pushed(gateway, part(tmp_path, "speaker"))
        variables = environ(AENV_HOME=str(tmp_path / "user"), HUB_BACKEND=url_of(gateway))
        done = await asyncio.to_thread(aenv, "push", whole(tmp_path, "1.0.0"), cwd=tmp_path, env=variables)
        assert (done.returncode, done.stderr) == (0, "")
        assert (await about(gateway, "1.0.0"))["dependencies"]["parts"] == ["it: speaker@1.0.0"]
        assert "it_says" in [tool["name"] for tool in (await about(gateway, "1.0.0"))["tools"]]


async def test_a_part_that_does_not_exist_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    status, reply = await push(gateway, whole(tmp_path, "1.0.0", "nowhere@^1"))
    assert status == 404
    assert reply["message"].startswith("field 'uses': the part 'it': environment 'nowhere@^1' not found")


async def test_a_part_whose_tools_would_hide_others_is_refused(gateway: Gateway, tmp_path: Path) -> None:
    await pushed(gateway, part(tmp_path, "speaker"))
    uses = [{"env": "speaker", "as": "it"}]
    status, reply = await push(gateway, project(tmp_path, "crowded", OWN.replace("own", "it_says"), uses=uses))
    assert (status, reply["message"]) == (
        400,
        "field 'uses': two tools would be called 'it_says'; give the part 'it' another name with 'as'",
    )


@pytest.mark.slow
async def test_a_private_part_of_another_user_does_not_exist(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    team = await make_accounts(home)
    async with running_gateway(home) as gateway:
        await pushed(gateway, part(tmp_path, "speaker"), team["alice"], access="private")
        source = whole(tmp_path, "1.0.0")
        status, reply = await push(gateway, source, team["bob"])
        assert (status, "field 'uses': the part 'it'" in reply["message"]) == (404, True)
        await pushed(gateway, source, team["alice"])
        # What alice has composed for the team is no way for bob to her private environment.
        with pytest.raises(EnvironmentError, match="the part 'it' did not start: environment 'speaker@"):
            await Environment("whole", aenv_url=url_of(gateway), api_key=key_of(team["bob"])).initialize()
        async with Environment("whole", aenv_url=url_of(gateway), api_key=key_of(team["alice"])) as env:
            assert (await env.call_tool("it_says", {})).text == "speaker"


def key_of(headers: list[tuple[str, str]]) -> str:
    return headers[0][1].removeprefix("Bearer ")
