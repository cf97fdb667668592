"""Ready agents: programs of others that play beside the instance, here with stand-ins that speak their protocols.

The real packages are tried in tests/integrations.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base.errors import InvalidRequest
from aenv.base.outcomes import Outcome
from aenv.rollouts import RolloutResult, Runner, Timeouts, roster
from aenv.rollouts.ready.mini_swe_agent import shell_tool
from aenv.rollouts.ready.python_package import pip_install
from tests import standins
from tests.agent_models import Said, chat, whole_messages, whole_responses
from tests.command_line import aenv, environ
from tests.rollout_worlds import gateway
from tests.streaming_models import Scripted, streaming_model
from tests.test_eval import instances

pytestmark = pytest.mark.slow  # each starts instances and programs

KEY = "sk-the-real-key-of-the-server"
STANDINS = Path(standins.__file__).parent
PREFIX = "mcp__environment__"
DONE = "I have submitted it."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("ready")) as (url, _):
        yield url


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with stand-ins for `claude` and `codex`, and with what scripts need."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("claude", "codex"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDINS / name}_standin.py "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


async def played(
    url: str, agent: str, replies: list[Scripted], task: str = "two", **options: Any
) -> tuple[RolloutResult, Any]:
    """The result of one rollout, and the model that was asked."""
    out = options.pop("out", None)
    async with (
        streaming_model(*replies) as model,
        Runner(1, url=url, retries=0, capture=model.url, capture_key=KEY, **options) as runner,
    ):
        (found,) = await runner.run("trouble", agent, [task], model="scripted", out=out)
    return found, model


def calls(result: RolloutResult) -> list[tuple[str, Any]]:
    assert result.trajectory
    return [(call.name, call.arguments) for call in result.trajectory.calls]


SCRIPTS: dict[str, tuple[str, Callable[..., list[Scripted]]]] = {
    "claude-code": (PREFIX, whole_messages),
    "codex": ("", whole_responses),
}


class TestPlaying:
    @pytest.mark.parametrize("agent", SCRIPTS)
    async def test_a_program_plays_with_the_tools_of_the_environment(
        self, served: str, programs: Path, tmp_path: Path, agent: str
    ) -> None:
        prefix, api = SCRIPTS[agent]
        said: list[Said] = [(f"{prefix}look", {}), (f"{prefix}submit", {"answer": 2}), DONE]
        found, model = await played(served, agent, api(*said), out=tmp_path / "run.jsonl")
        assert (found.outcome, found.reward, found.steps) == (Outcome.REWARD, 1.0, 2), found.reason
        assert calls(found) == [("look", {}), ("submit", {"answer": 2})]
        assert (found.run.agent, found.run.model) == (agent, "scripted")
        trajectory = found.trajectory
        assert trajectory and len(trajectory.exchanges) == 3
        assert trajectory.turns[-1].message["content"] == DONE
        assert "what is 1+1?" in json.dumps(model.asked[0].body)
        # All of it is a record that can be made again, and no secret is in it.
        again = aenv("replay", tmp_path / "run.jsonl", "--system-url", served)
        assert (again.returncode, "2 calls, the same answers" in again.stdout) == (0, True), again.stderr
        assert KEY not in (tmp_path / "run.jsonl").read_text()
        assert [KEY in str(one.headers) for one in model.asked] == [True] * 3

    def test_openhands_plays_by_its_sdk(self, served: str, tmp_path: Path) -> None:
        python = python_with_openhands(tmp_path / "venv")
        script = tmp_path / "play.py"
        script.write_text(PLAY.format(root=str(Path(__file__).parent.parent), url=served))
        done = subprocess.run([python, script], capture_output=True, text=True, env=environ())
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ["reward", 1.0, ["look", "submit"], DONE]

    async def test_it_has_no_variable_of_the_user_and_a_home_of_its_own(
        self, served: str, programs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_OF_THE_USER", "do not tell")
        found, model = await played(served, "claude-code", whole_messages((f"{PREFIX}variables", {}), DONE))
        (told,) = [one for one in model.asked[1].body["messages"][-1]["content"] if one["type"] == "tool_result"]
        variables = json.loads(told["content"])
        assert "do not tell" not in told["content"] and KEY not in told["content"]
        assert variables["HOME"] != os.environ["HOME"]
        assert not Path(variables["HOME"]).exists()  # it is gone with the rollout
        assert found.outcome == Outcome.REWARD

    async def test_calls_beyond_the_steps_of_the_task_are_refused(self, served: str, programs: Path) -> None:
        task = {"id": "x", "variables": {"ID": "two", "N": "1", "SUM": "1+1"}, "max_steps": 1}
        said: list[Said] = [(f"{PREFIX}look", {}), DONE]
        found, model = await played(served, "claude-code", whole_messages(*said), task)  # type: ignore[arg-type]
        assert found.outcome == Outcome.REWARD
        two_at_once = whole_messages(said[0], DONE)
        two_at_once[0]["content"] *= 2  # type: ignore[index, call-overload]
        found, model = await played(served, "claude-code", two_at_once, task)  # type: ignore[arg-type]
        assert (found.outcome, found.steps) == (Outcome.REWARD, 1)
        assert "no more calls are allowed" in json.dumps(model.asked[1].body)


class TestFaults:
    @pytest.mark.parametrize(
        ("agent", "fix"),
        [
            ("claude-code", "npm install -g @anthropic-ai/claude-code"),
            ("codex", "npm install -g @openai/codex"),
            ("openhands", pip_install("openhands-sdk", since=(3, 12))),
            ("smolagents", f"{sys.executable} -m pip install 'smolagents[mcp,openai]'"),
        ],
    )
    async def test_a_program_that_is_not_installed_is_not_ready_and_the_fix_is_named(
        self, served: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, agent: str, fix: str
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        found, _ = await played(served, agent, [])
        assert (found.outcome, found.attempts) == (Outcome.NOT_READY, 1)
        assert found.reason.startswith(f"agent {agent!r} is not installed: ")
        assert fix in found.reason

    async def test_a_program_that_fails_is_an_error_of_the_agent_without_its_token(
        self, served: str, programs: Path
    ) -> None:
        found, _ = await played(served, "claude-code", whole_messages((f"{PREFIX}fail", {})))
        assert found.outcome == Outcome.AGENT_ERROR
        assert found.reason == "agent 'claude-code' ended with code 1: I failed with ***"

    async def test_a_program_that_hangs_is_ended_with_all_that_it_started(
        self, served: str, programs: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "pids"
        hang = whole_messages((f"{PREFIX}hang", {"file": str(file)}))
        found, _ = await played(served, "claude-code", hang, timeouts=Timeouts(agent=4.0))
        assert found.outcome == Outcome.TIMEOUT, found.reason
        pids = [int(pid) for pid in file.read_text().split()]
        assert len(pids) == 2
        for pid in pids:
            await ended(pid)
        assert await instances(served) == []

    async def test_a_program_ends_with_all_that_it_started_when_the_evaluation_is_killed(
        self, served: str, programs: Path, tmp_path: Path
    ) -> None:
        file = tmp_path / "pids"
        (tmp_path / "temporary").mkdir()
        async with streaming_model(*whole_messages((f"{PREFIX}hang", {"file": str(file)}))) as model:
            words = ("--agent", "claude-code", "--model", "m", "--base-url", model.url, "--tasks", "two")
            evaluation = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "aenv.cli", "eval", "trouble", *words, "--system-url", served),
                *("--out", str(tmp_path / "x")),
                env=environ(OPENAI_API_KEY=KEY, PATH=os.environ["PATH"], TMPDIR=str(tmp_path / "temporary")),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            while not (file.exists() and len(file.read_text().split()) == 2):
                assert evaluation.returncode is None
                await asyncio.sleep(0.01)
            pids = [int(pid) for pid in file.read_text().split()]
            evaluation.kill()
            await evaluation.wait()
            for pid in pids:
                await ended(pid)
            while list((tmp_path / "temporary").iterdir()):
                await asyncio.sleep(0.01)

    async def test_a_model_that_is_away_is_the_infrastructure(self, served: str, programs: Path) -> None:
        async with Runner(1, url=served, retries=0, capture="http://127.0.0.1:1/v1") as runner:
            (found,) = await runner.run("trouble", "claude-code", ["two"], model="m")
        assert found.outcome == Outcome.INFRA_ERROR

    async def test_a_program_without_a_capture_says_what_is_missing(self, served: str, programs: Path) -> None:
        async with Runner(1, url=served, retries=0) as runner:
            (found,) = await runner.run("trouble", "claude-code", ["two"], model="m")
        assert (found.outcome, "capture=" in found.reason) == (Outcome.AGENT_ERROR, True)

    def test_a_package_that_wants_a_newer_python_is_not_to_be_installed_with_this_one(self) -> None:
        assert pip_install("openhands-sdk", since=(3, 11)) == f"{sys.executable} -m pip install openhands-sdk"
        fix = pip_install("openhands-sdk", since=(4, 1))
        assert fix == "it needs Python 4.1 or newer: install aenv and openhands-sdk with one"

    def test_a_ready_agent_needs_a_model(self) -> None:
        with pytest.raises(InvalidRequest, match="'codex' needs the name of its model"):
            roster.named("codex")

    def test_commands_need_a_tool_that_runs_them(self) -> None:
        command = {"properties": {"command": {"type": "string"}, "timeout": {}}, "required": ["command"]}
        assert (
            shell_tool([{"name": "look", "inputSchema": {}}, {"name": "bash", "inputSchema": command}]) == "bash"
        )
        with pytest.raises(InvalidRequest, match="no tool that takes a 'command': look"):
            shell_tool([{"name": "look", "inputSchema": {}}])


class TestCommand:
    async def test_an_evaluation_with_a_ready_agent(self, served: str, programs: Path, tmp_path: Path) -> None:
        said: list[Said] = [(f"{PREFIX}submit", {"answer": 2}), DONE]
        async with streaming_model(*whole_messages(*said)) as model:
            words = ("--agent", "claude-code", "--model", "m", "--base-url", model.url, "--tasks", "two")
            done = await asyncio.to_thread(
                aenv,
                "eval",
                "trouble",
                *words,
                "--system-url",
                served,
                "--out",
                tmp_path / "x",
                "--json",
                env=environ(OPENAI_API_KEY=KEY),
            )
        found = json.loads(done.stdout)
        assert (done.returncode, found["reward"], found["agent"], found["model"]) == (0, 1.0, "claude-code", "m")
        assert found["tokens"] == {"in": 14, "out": 4}
        assert [one.headers["x-api-key"] for one in model.asked] == [KEY] * 2

    async def test_an_agent_of_your_own_is_captured(self, served: str, tmp_path: Path) -> None:
        (tmp_path / "own_agents.py").write_text(OWN_AGENT)
        async with streaming_model(*chat("2")) as model:
            words = ("--agent", "own_agents:asking", "--capture", "--model", "m", "--base-url", model.url)
            done = await asyncio.to_thread(
                aenv,
                "eval",
                "trouble",
                *words,
                "--tasks",
                "two",
                "--parameter",
                "logprobs=true",
                "--system-url",
                served,
                "--out",
                tmp_path / "x",
                cwd=tmp_path,
                env=environ(OPENAI_API_KEY=KEY),
            )
        assert done.returncode == 0, done.stdout + done.stderr
        (asked,) = model.asked
        assert (asked.headers["authorization"], asked.body["logprobs"]) == (f"Bearer {KEY}", True)
        shown = aenv("trajectories", "show", tmp_path / "x")
        assert "[model 1] chat/completions" in shown.stdout
        assert 'submit({"answer": 2})' in shown.stdout

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            (("--agent", "codex", "--base-url", "http://x/v1"), "'codex' needs the name of its model: --model"),
            (("--agent", "codex", "--model", "m"), "'codex' is captured, and needs --base-url"),
            (("--agent", "nop", "--capture"), "'nop' asks no model; leave out --capture"),
            (
                ("--agent", "llm", "--capture", "--model", "m", "--base-url", "http://x/v1"),
                "'llm' records what it asks by itself",
            ),
            (("--agent", "nop", "--parameter", "logprobs=true"), "add --capture"),
            (
                ("--agent", "codex", "--model", "m", "--base-url", "http://x/v1", "--parameter", "logprobs"),
                "parameter 'logprobs' must be NAME=JSON",
            ),
        ],
    )
    def test_misuse_is_one_line(self, words: tuple[str, ...], why: str) -> None:
        done = aenv("eval", "trouble", *words, "--system-url", "http://127.0.0.1:1")
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr


OWN_AGENT = """
import json, urllib.request


def asking(env, task):
    body = {"model": "m", "messages": [{"role": "user", "content": "how much is it?"}]}
    headers = {"authorization": "Bearer " + env.model.key, "content-type": "application/json"}
    request = urllib.request.Request(env.model.url + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        said = json.load(reply)["choices"][0]["message"]["content"]
    env.call_tool("submit", {"answer": int(said)})
"""
PLAY = """
import asyncio, json, sys
sys.path.insert(0, {root!r})
from aenv.rollouts import Runner
from tests.agent_models import chat
from tests.streaming_models import streaming_model


async def main():
    said = chat(("look", {{}}), ("submit", {{"answer": 2}}), "I have submitted it.")
    async with streaming_model(*said) as model:
        async with Runner(1, url={url!r}, retries=0, capture=model.url) as runner:
            (one,) = await runner.run("trouble", "openhands", ["two"], model="scripted")
    if one.reason:
        sys.exit(one.reason)
    last = one.trajectory.turns[-1].message["content"]
    print(json.dumps([one.outcome, one.reward, [call.name for call in one.trajectory.calls], last]))


asyncio.run(main())
"""


def python_with_openhands(folder: Path) -> Path:
    """A Python that has what this one has, and the stand-in for the SDK of OpenHands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    ours = [sysconfig.get_paths()["purelib"], str(STANDINS.parent.parent / "src"), str(STANDINS)]
    (site / "ours.pth").write_text("\n".join(ours))
    package = site / "openhands" / "sdk"
    (package / "conversation").mkdir(parents=True)
    (package / "__init__.py").write_text("from openhands_sdk import LLM, Agent, Conversation\n")
    (package / "conversation" / "__init__.py").touch()
    final = "from openhands_sdk import get_agent_final_response\n"
    (package / "conversation" / "response_utils.py").write_text(final)
    return folder / "bin" / "python"


async def ended(pid: int) -> None:
    """Return when there is no such process, or it is only waited for."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        await asyncio.sleep(0.01)
