"""Agent frameworks: each runs for real with a scripted model, with our tools and with its own MCP client."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aenv import Environment
from tests.gateways import Gateway, running_gateway

from . import difficult_calls as calls
from .agent_models import AgentModel, Call, Turn, agent_model
from .conftest import PROJECTS, Run
from .frameworks import ROOT

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Framework:
    """What a framework does in its own way."""

    name: str
    changes_schemas: bool = False
    """Whether it writes the schemas of tools anew; what they accept must be the same all the same."""
    picture: str = calls.PIXEL
    """What it keeps of an image that a tool returned."""
    shows_pictures: bool = True
    """Whether a model of chat completions gets to see that image."""
    ends: Turn = "All done."
    """How its agents end."""
    blocks: bool = False
    """Whether its agents also run without async."""
    goes_on: bool = True
    """Whether it tells a model what is wrong that has said something else than arguments."""
    cancel: str = "cancel"
    """The mode of its program that stops an agent while a tool runs."""
    names: dict[str, str] = field(default_factory=dict)
    """What it calls tools whose names it does not take."""


NATIVE = [
    Framework("openai_agents", shows_pictures=False, blocks=True),
    Framework("camel", picture="data:image/png;base64,", blocks=True, goes_on=False),
    Framework("langchain", changes_schemas=True, blocks=True, goes_on=False),
    Framework(
        "smolagents",
        changes_schemas=True,
        picture="PngImageFile",
        shows_pictures=False,
        ends=Call("final_answer", {"answer": "All done."}),
        blocks=True,
        cancel="interrupt",
        names={"get-weather": "get_weather", "import": "import_"},
    ),
    Framework("pydantic_ai", changes_schemas=True, blocks=True),
    Framework("google_adk", goes_on=False),
    Framework("inspect_ai", changes_schemas=True),
    Framework("autogen", picture="[image/png, 70 bytes]", shows_pictures=False),
]
BY_NAME = {framework.name: framework for framework in NATIVE}
ANNA = Call("nested", {"person": calls.ANNA})
ANNA_RECEIVED = [{"tool": "nested", "arguments": {"person": {**calls.ANNA, "earlier": []}}}]


def _react(tool: str, arguments: dict[str, Any]) -> str:
    """A turn of DSPy's ReAct, which asks a model for texts with headings."""
    fields = {"next_thought": "On.", "next_tool_name": tool, "next_tool_args": json.dumps(arguments)}
    return _fields(fields)


def _fields(fields: dict[str, str]) -> str:
    return "".join(f"[[ ## {name} ## ]]\n{text}\n\n" for name, text in {**fields, "completed": ""}.items())


# Frameworks that are used over MCP alone, and what a model says there to do the same.
OVER_MCP: dict[str, list[Turn]] = {
    "crewai": [ANNA, Call("fail"), "All done."],
    "dspy": [
        _react("nested", ANNA.arguments),
        _react("fail", {}),
        _react("finish", {}),
        _fields({"reasoning": "It is done.", "answer": "All done."}),
    ],
    "agno": [ANNA, Call("fail"), "All done."],
    "strands": [ANNA, Call("fail"), "All done."],
}
each_native = pytest.mark.parametrize("name", BY_NAME)


@pytest.fixture
def project() -> str:
    return "difficult"


@pytest.fixture
async def gateway(tmp_path: Path, project: str):
    async with running_gateway(tmp_path / "home", PROJECTS / project) as running:
        yield running


async def played(run: Run, name: str, mode: str, *script: Any) -> tuple[dict[str, Any], AgentModel]:
    """What the program of a framework has printed, and the model that it has asked."""
    async with agent_model(script) as model:
        said = await run(name, f"agent_{name}.py", mode, OPENAI_BASE_URL=model.url, OPENAI_API_KEY="none")
    return json.loads(said.splitlines()[-1]), model


@each_native
async def test_difficult_arguments_arrive_and_errors_and_images_are_told(
    run: Run, gateway: Gateway, name: str
) -> None:
    framework = BY_NAME[name]
    said, model = await played(run, name, "tools", *calls.SCRIPT, framework.ends)
    assert said["final"] == "All done."
    assert said["received"] == calls.RECEIVED
    await _assert_schemas(gateway, model, exactly=not framework.changes_schemas)
    assert model.heard(calls.FAIL, "the door is locked")
    assert model.heard(calls.WRONG_ARGUMENTS, "address")
    assert model.heard(calls.PICTURE, "a pixel")
    assert model.heard(calls.DRAWING, "a circle")
    assert framework.picture in said["transcript"]
    assert model.heard(calls.PICTURE, "data:image/png;base64,") == framework.shows_pictures


async def _assert_schemas(gateway: Gateway, model: AgentModel, *, exactly: bool) -> None:
    url = f"http://127.0.0.1:{gateway.address.port}"
    async with Environment("difficult@1.0.0", aenv_url=url) as env:
        ours = {tool["function"]["name"]: tool["function"] for tool in await env.openai_tools()}
    told = {name: function for name, function in model.functions.items() if name != "final_answer"}
    assert set(told) == set(ours)
    assert {name: told[name]["description"] for name in calls.DOCUMENTED} == calls.DOCUMENTED
    if exactly:
        assert {name: tool["parameters"] for name, tool in told.items()} == {
            name: tool["parameters"] for name, tool in ours.items()
        }
    for call, _ in calls.GOOD:
        assert _accepts(told, call), f"the schema of {call.name} refuses {call.arguments}: {told[call.name]}"
    for call in calls.WRONG:
        assert not _accepts(told, call), f"the schema of {call.name} accepts {call.arguments}: {told[call.name]}"
    assert "Umlauten: äöü" in json.dumps(told["unicode"]["parameters"], ensure_ascii=False)


def _accepts(told: dict[str, dict[str, Any]], call: Call) -> bool:
    schema = told[call.name].get("parameters", {"type": "object"})
    return jsonschema.Draft202012Validator(schema).is_valid(call.arguments)


@each_native
@pytest.mark.parametrize("project", ["foreign"])
async def test_tools_that_servers_of_others_describe_are_known_and_called(run: Run, name: str) -> None:
    framework = BY_NAME[name]
    made = [Call(framework.names.get(call.name, call.name), call.arguments) for call in calls.FOREIGN]
    said, model = await played(run, name, "tools", *made, framework.ends)
    assert said["final"] == "All done."
    assert {call.name for call in made} == {*model.functions} - {"final_answer"}
    for turn, call in enumerate(made):
        assert model.heard(turn, "127.0.0.1:9/mcp cannot be reached"), call
        assert _accepts(model.functions, call), model.functions[call.name]


@pytest.mark.parametrize("name", [framework.name for framework in NATIVE if framework.goes_on])
async def test_what_is_no_json_or_no_object_is_told_to_the_model(run: Run, name: str) -> None:
    wrong = [Call("nested", text='{"person": '), Call("nested", text='"Anna"')]
    said, _ = await played(run, name, "tools", wrong[0], ANNA, wrong[1], ANNA, BY_NAME[name].ends)
    assert said["final"] == "All done."
    assert said["received"] == ANNA_RECEIVED * 2


@each_native
async def test_a_cancelled_conversation_stops_the_tool_that_runs(run: Run, name: str) -> None:
    said, model = await played(run, name, BY_NAME[name].cancel, Call("wait"), "I should not be asked.")
    assert said == {"tool_was_cancelled": True}
    assert len(model.asked) == 1


@pytest.mark.parametrize("name", [framework.name for framework in NATIVE if framework.blocks])
async def test_an_agent_that_blocks_calls_the_tools_of_a_blocking_environment(run: Run, name: str) -> None:
    said, model = await played(run, name, "sync", ANNA, Call("fail"), BY_NAME[name].ends)
    assert said["final"] == "All done."
    assert said["received"] == ANNA_RECEIVED
    assert model.heard(1, "the door is locked")


@pytest.mark.parametrize("name", [*BY_NAME, *OVER_MCP])
async def test_its_own_mcp_client_works_with_the_url_of_an_instance(run: Run, name: str) -> None:
    script = OVER_MCP.get(name) or [ANNA, Call("fail"), BY_NAME[name].ends]
    said, model = await played(run, name, "mcp", *script)
    assert said["final"] == "All done."
    assert said["received"] == ANNA_RECEIVED
    assert model.heard(0, "nested ok")
    assert model.heard(1, "the door is locked")


@each_native
async def test_its_example_prints_what_the_page_shows(run: Run, name: str) -> None:
    page = (ROOT / "docs" / "integrations.md").read_text()
    shown = page.partition(f"$ python -m aenv.examples.agents.{name}\n")[2].partition("```")[0]
    assert await run(name, f"aenv.examples.agents.{name}") == shown
    assert "reward: 1.0" in shown
