"""The examples of built-in environments, with a model that acts in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_servers import ScriptedModel, called, model

from .shells import example, native_gateway


async def played(home: Path, folder: str, server: ScriptedModel) -> str:
    async with native_gateway(home, folder) as gateway:
        return await example(gateway, folder, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k", OPENAI_MODEL="tiny")


@pytest.mark.slow
async def test_a_model_works_at_the_terminal(tmp_path: Path) -> None:
    command = called("execute_command", '{"command": "echo $((6 * 7))"}')
    async with model(command, {"content": "done"}) as server:
        said = await played(tmp_path, "terminalbench", server)
    assert "42" in server.asked[1]["messages"][-1]["content"]
    assert '"reward": 0.0' in said


@pytest.mark.slow
async def test_a_model_calculates(tmp_path: Path) -> None:
    async with model(*[{"content": "I do not know"}] * 5) as server:
        said = await played(tmp_path, "gsm_tools", server)
    assert said.endswith("0 of 5\n")
    assert {asked["model"] for asked in server.asked} == {"tiny"}
    assert [tool["function"]["name"] for tool in server.asked[0]["tools"]]
    assert "authorization: Bearer k\r\n" in server.headers[0]


@pytest.mark.slow
async def test_a_model_lives_in_a_simulated_world(tmp_path: Path) -> None:
    async with model({"content": '{"action": "water"}'}, {"content": '{"action": "finish"}'}) as server:
        said = await played(tmp_path, "simulation", server)
    assert "water {}" in said
    assert len(server.asked) == 2
