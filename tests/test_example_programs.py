"""The examples of the package, run as people run them; and the entry point that trainers import."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from aenv import Environment
from aenv.examples import trainers
from aenv.examples.tau2_rl.agent import Tau2Agent, run_agent_return_reward
from aenv.examples.weather.__main__ import PROJECT
from tests.command_line import environ
from tests.gateways import Gateway, running_gateway
from tests.model_servers import called, model
from tests.platforms import end_platforms

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
CREATE = json.dumps({"user_id": "user_1", "title": "Important Meeting"})


@pytest.fixture
async def gateway(tmp_path: Path, shared: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", data_roots=(shared / "data",)) as running:
        yield running


def url_of(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address.port}"


async def ran(program: str, *arguments: str, **variables: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"aenv.examples.{program}", *arguments),
        env=environ(**variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_weather_demo_needs_no_gateway_and_is_rewarded() -> None:
    code, said, _ = await ran("weather")
    assert (code, said.splitlines()[-2:]) == (0, ['agent:  pack(umbrella) -> ["umbrella"]', "reward: 1.0"])


@pytest.mark.parametrize(
    ("program", "lines", "last"),
    [
        ("hierarchical", 4, "games: a ball and a kite"),
        ("debate", 5, "verdict: against, by endurance"),
        ("adversarial", 7, "leaked after 3 attempts"),
    ],
)
async def test_agents_that_use_agents_play_to_their_end(
    program: str, lines: int, last: str, tmp_path: Path
) -> None:
    code, said, problems = await ran(f"agents.{program}", TMPDIR=str(tmp_path))
    assert (code, len(said.splitlines()), said.splitlines()[-1:]) == (0, lines, [last]), problems
    assert [*tmp_path.glob("aenv-agents-*")] == []


FRAMEWORKS = {  # what is imported, and the extra
    "agents.autogen": ("autogen_agentchat", "autogen"),
    "agents.camel": ("camel", "camel"),
    "agents.google_adk": ("google.adk", "google-adk"),
    "agents.inspect_ai": ("inspect_ai", "inspect-ai"),
    "agents.langchain": ("langchain", "langchain"),
    "agents.openai_agents": ("agents", "openai-agents"),
    "agents.pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "agents.smolagents": ("smolagents", "smolagents"),
    "trainers.areal": ("areal", "areal"),
    "trainers.gymnasium": ("gymnasium", "gymnasium"),
    "trainers.ray": ("ray", "ray"),
    "trainers.stable_baselines3": ("stable_baselines3", "stable-baselines3"),
    "trainers.skyrl": ("skyrl_gym", "skyrl"),
    "trainers.trl": ("trl", "trl"),
    "trainers.verl": ("verl", "verl"),
}


@pytest.mark.parametrize("example", FRAMEWORKS)
def test_an_example_without_its_framework_says_in_one_line_what_to_install(example: str) -> None:
    missing, extra = FRAMEWORKS[example]
    module = f"aenv.examples.{example}"
    program = (
        f"import runpy, sys; sys.modules[{missing!r}] = None; runpy.run_module({module!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environ(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    command = done.stderr.strip().partition("; install it with: ")[2]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [Requirement(one) for one in extras[extra]]
    named = [Requirement(one) for one in shlex.split(command)[2:]]
    assert {(one.name, one.specifier) for one in wanted} <= {(one.name, one.specifier) for one in named}
    assert f"`{command}`" in (ROOT / "docs" / "integrations.md").read_text()


async def test_trainers_walk_the_line_without_a_gateway_to_start_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AENV_SYSTEM_URL", raising=False)
    async with trainers.line_gateway() as url, Environment(trainers.LINE, aenv_url=url) as env:
        told = await env.reset(seed=1)
        position, goal = map(int, told["instruction"].split())
        for _ in range(abs(goal - position)):
            last = await env.call_tool("move", {"by": 1 if goal > position else -1})
        assert last.structured == {"observation": f"{goal} {goal}", "done": True}
        assert await env.call_reward({}) == {"reward": 1.0}


async def test_the_environment_of_the_weather_demo_is_a_project_that_a_gateway_serves(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path / "home", PROJECT) as gateway,
        Environment("weather-demo@1.0.0", aenv_url=url_of(gateway)) as env,
    ):
        assert (await env.call_tool("get_weather", {"city": "Paris"})).is_error
        await env.call_tool("pack", {"thing": "umbrella"})
        await env.call_tool("pack", {"thing": "hat"})
        assert await env.call_reward({}) == {"reward": 0.0}


async def test_a_session_at_the_terminal_keeps_its_folder_from_command_to_command(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        code, said, errors = await ran("mini_terminal", AENV_SYSTEM_URL=url_of(gateway))
    assert code == 0, errors
    printed = [line for line in said.splitlines() if not line.startswith("$")]
    assert printed == ["work", "3", "42", "[exit code 3]"]


async def test_two_environments_are_one(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home") as gateway:
        code, said, errors = await ran("composition", AENV_SYSTEM_URL=url_of(gateway))
    assert code == 0, errors
    lines = said.splitlines()
    assert lines[:2] == ["maths-and-terminal/read_problem", "maths-and-terminal/calculate"]
    assert "maths-and-terminal/terminal_execute_command" in lines
    assert lines[-2:] == ["terminal: 42", "submit:   taken"]


async def test_a_scripted_model_serves_a_customer_and_is_rewarded(gateway: Gateway, shared: Path) -> None:
    variables = {"AENV_SYSTEM_URL": url_of(gateway), "TAU2_DATA_DIR": str(shared / "data")}
    code, said, errors = await ran("tau2_rl", **variables)
    assert (code, said) == (0, "mock create_task_1: reward 1\n"), errors
    code, _, errors = await ran("tau2_rl", "--task", "no-such-task", **variables)
    assert (code, "no-such-task" in errors, "Traceback" in errors) == (1, True, False)


async def test_without_data_of_tau2_the_example_plays_a_task_of_its_own(tmp_path: Path) -> None:
    kept = {"HOME": str(tmp_path), "AENV_HOME": str(tmp_path / "aenv"), "TAU2_DATA_DIR": "", "OPENAI_BASE_URL": ""}
    try:
        code, said, errors = await ran("tau2_rl", **kept)
    finally:
        end_platforms(tmp_path / "aenv")
    assert (code, said) == (0, "mock create_task_1: reward 1\n"), errors
    assert "the example's own" in errors


@pytest.mark.parametrize(("title", "reward"), [("Important Meeting", 1.0), ("Unimportant Meeting", 0.0)])
async def test_trainers_get_the_reward_of_an_episode_as_the_documents_say(
    gateway: Gateway, shared: Path, monkeypatch: pytest.MonkeyPatch, title: str, reward: float
) -> None:
    monkeypatch.setenv("AENV_SYSTEM_URL", url_of(gateway))
    monkeypatch.setenv("TAU2_DATA_DIR", str(shared / "data"))
    create = called("create_task", json.dumps({"user_id": "user_1", "title": title}))
    goodbye = [{"content": "It is created."}] * 6
    async with model(create, *goodbye) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        got = await run_agent_return_reward({"domain": "mock", "task_id": "create_task_1"})
    assert (got, type(got)) == (reward, float)
    assert "tau2_done" not in {tool["function"]["name"] for tool in server.asked[0]["tools"]}
    assert server.asked[0]["messages"][1]["role"] == "user"


async def test_an_agent_of_areal_uses_the_proxy_that_it_is_handed(
    gateway: Gateway, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AENV_SYSTEM_URL", url_of(gateway))
    monkeypatch.setenv("TAU2_DATA_DIR", str(shared / "data"))
    data = {"domain": "mock", "task_id": "create_task_1"}
    async with model(called("create_task", CREATE), *[{"content": "Done."}] * 6) as server:
        reward = await Tau2Agent().run(data, base_url=server.url, api_key="of-the-session", http_client=object())
    assert reward == 1.0
    assert all("authorization: Bearer of-the-session\r\n" in head for head in server.headers)


async def test_without_a_model_the_entry_point_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        await run_agent_return_reward({"domain": "mock"})
