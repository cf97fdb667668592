"""Parts with `"workspace": "shared"` work in the workspace of the whole; an engine that cannot do that says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv import Environment, compose
from aenv.base.errors import Unsupported
from tests.composed_projects import SAYS, part, project, url_of
from tests.gateways import Gateway, running_gateway

pytestmark = pytest.mark.slow  # instances are programs
USES = [
    {"env": "left", "as": "l", "workspace": "shared"},
    {"env": "right", "as": "r", "workspace": "shared"},
    {"env": "right", "as": "apart"},
]


def folders(tmp_path: Path) -> list[Path]:
    deep = [{"env": "whole", "as": "w", "workspace": "shared"}]
    return [
        part(tmp_path, "left"),
        part(tmp_path, "right"),
        project(tmp_path, "whole", SAYS, uses=USES),
        project(tmp_path, "deep", SAYS, uses=deep),
    ]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", *folders(tmp_path)) as running:
        yield running


async def test_what_one_part_writes_the_others_and_the_whole_read(gateway: Gateway) -> None:
    async with Environment("whole", aenv_url=url_of(gateway)) as env:
        await env.call_tool("l_write", {"name": "note", "text": "from the left"})
        for tool in ("r_read", "read"):
            assert (await env.call_tool(tool, {"name": "note"})).text == "from the left"
        assert (await env.call_tool("apart_read", {"name": "note"})).is_error
        assert [one["path"] for one in await env.list_files()] == ["note"]
        async with Environment("whole", aenv_url=url_of(gateway)) as other:
            assert (await other.call_tool("r_read", {"name": "note"})).is_error


async def test_the_files_of_a_part_are_those_of_the_whole_and_stay_when_the_part_ends(gateway: Gateway) -> None:
    async with Environment("whole", aenv_url=url_of(gateway)) as env:
        await env.call_tool("write", {"name": "note", "text": "mine"})
        _, reply = await gateway.ask("GET", "/env-instance/*/list")
        [left] = [one["id"] for one in reply["data"] if one["env"]["name"] == "left"]
        async with Environment("left", attach=left, aenv_url=url_of(gateway)) as seen:
            assert [one["path"] for one in await seen.list_files()] == ["note"]
            assert (await seen.exec("cat note")).stdout == "mine"
        await gateway.ask("DELETE", f"/env-instance/{left}")
        assert (await env.call_tool("r_read", {"name": "note"})).text == "mine"
        place = Path((await env.call_tool("folder", {})).text)
    assert not place.exists()


async def test_a_part_that_is_composed_itself_hands_the_workspace_on(gateway: Gateway) -> None:
    async with Environment("deep", aenv_url=url_of(gateway)) as env:
        await env.call_tool("w_l_write", {"name": "note", "text": "from below"})
        assert (await env.call_tool("read", {"name": "note"})).text == "from below"


async def test_compose_shares_it_between_all_parts(gateway: Gateway) -> None:
    async with compose("left", "right", name="two", workspace="shared", aenv_url=url_of(gateway)) as env:
        await env.call_tool("left_write", {"name": "note", "text": "for you"})
        assert (await env.call_tool("right_read", {"name": "note"})).text == "for you"


async def test_the_native_engine_refuses_it_before_anything_starts(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", *folders(tmp_path), engine="native") as gateway:
        with pytest.raises(
            Unsupported, match=r"native engine cannot share a workspace .*'uses.workspace' of 'whole@"
        ):
            await Environment("whole", aenv_url=url_of(gateway)).initialize()
        assert (await gateway.ask("GET", "/env-instance/*/list"))[1]["data"] in ([], None)
