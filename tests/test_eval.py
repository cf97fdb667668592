"""`aenv eval`: agents over tasks, results that outlive an interruption, and what the numbers say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aenv import mcp
from aenv.addresses import Origin
from aenv.errors import Conflict, Forbidden, InvalidRequest, NotFound
from aenv.http1 import Pool
from aenv.tasks import agents, chat, evaluation, results, roster
from aenv.tasks.chat import Chat
from aenv.tasks.evaluation import Options
from aenv.tasks.instances import Place
from aenv.tasks.llm import Llm, Model
from aenv.tasks.task import Wanted
from tests.command_line import aenv, environ, serving
from tests.gateways import make_project
from tests.native import traces
from tests.task_environments import DICE, SUMS, changed

HANG = '''
@register_tool
async def hang() -> None:
    """Never answer."""
    import asyncio

    await asyncio.Event().wait()


@register_tool
def picture() -> Image:
    """A picture."""
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")


@register_tool
def send_message(message: str, sheet: Current) -> dict:
    """Talk to the user."""
    sheet.answer = int(message) if message.isdecimal() else None
    return {"observation": "" if sheet.answer else "which number?", "done": sheet.answer is not None}
'''
INVALID = changed(
    SUMS,
    (
        "    return float(sheet.answer ==",
        '    return {"invalid": "no evidence", "reward": 0.0}\n    return float(sheet.answer ==',
    ),
)
PROJECTS = {
    "sums": SUMS,
    "talk": changed(SUMS, ("Depends, ToolError", "Depends, Image, ToolError")) + HANG,
    "unjudged": INVALID,
    "bare": DICE,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A gateway that isolates, and its home."""
    folder = tmp_path_factory.mktemp("eval")
    projects = [make_project(folder, name, code=code) for name, code in PROJECTS.items()]
    options = ("--port", "0", "--data-port", "0", "--engine", "native", "--home", folder / "home")
    # Nobody reads what it logs, and a pipe that is full would stop it.
    with serving("serve", *projects, *options, "--log-level", "WARNING") as server:
        *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
        yield line.partition("=")[2], folder / "home"
    assert traces(folder / "home") == []


@pytest.fixture
def url(served: tuple[str, Path]) -> str:
    return served[0]


class Run:
    """Evaluates, in this process, and keeps what was told."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.told: list[dict[str, Any]] = []

    async def __call__(
        self,
        env: str,
        agent: Any,
        *,
        tasks: tuple[str, ...] = (),
        split: str = "",
        limit: float = 60.0,
        eval_only: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        place = Place(f"{env}@1.0.0", self.url, limit=limit, eval_only=eval_only)
        given = {"out": self.folder / "out.jsonl", **options}
        try:
            return await evaluation.evaluate(
                place, Wanted(tasks, split), 2, agent, Options(**given), self.told.append
            )
        finally:
            await agent.close()


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    return Run(url, tmp_path)


def outcomes(found: list[dict[str, Any]]) -> dict[str, str]:
    return {one["task"]: one["outcome"] for one in found}


class TestAgents:
    @pytest.mark.slow
    async def test_the_oracle_passes_and_who_does_nothing_fails(self, run: Run, tmp_path: Path) -> None:
        found = await run("sums", agents.Oracle())
        assert outcomes(found) == {"two": "pass", "six": "pass"}
        one = found[0]
        assert one["reward"] == 1.0
        assert one["seconds"] > 0
        assert (one["steps"], one["environment"], one["agent"], one["seed"]) == (1, "sums@1.0.0", "oracle", 0)
        assert {one["task"]: one["split"] for one in found} == {"two": "train", "six": "test"}
        written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert written == run.told == found
        assert outcomes(await run("sums", agents.Nop(), out=tmp_path / "nop")) == {"two": "fail", "six": "fail"}

    @pytest.mark.slow
    async def test_calls_at_random_are_the_same_for_the_same_seed(self, run: Run, tmp_path: Path) -> None:
        async def conversation(seed: int, number: int) -> list[Any]:
            file = tmp_path / f"chats{number}"
            agent = agents.RandomCalls(seed, 5)
            await run("sums", agent, tasks=("six",), out=tmp_path / str(number), trajectories=file)
            return json.loads(file.read_text())["messages"]

        first, second, other = [await conversation(seed, n) for n, seed in enumerate((1, 1, 5))]
        assert first == second
        assert first != other
        assert first[0] == {"role": "user", "content": "what is 3+3?"}
        assert [message["role"] for message in first[1:3]] == ["assistant", "tool"]

    async def test_a_function_of_your_own_plays(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "my_agent.py").write_text(
            "async def solve(env, task):\n"
            "    await env.call_tool('submit', {'answer': 2 if task['id'] == 'two' else 7})\n"
            "    return {'cost': 0.5, 'tokens': {'in': 3, 'out': 4}}\n\n\n"
            "async def fail(env, task):\n    raise RuntimeError('I cannot')\n\n\n"
            "def plain(env, task):\n    pass\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        found = await run("sums", roster.agent("my_agent:solve", {}))
        assert outcomes(found) == {"two": "pass", "six": "fail"}
        assert (found[0]["cost"], found[0]["tokens"], found[0]["steps"]) == (0.5, {"in": 3, "out": 4}, 1)
        found = await run("sums", roster.agent("my_agent:fail", {}), tasks=("two",), out=tmp_path / "fail")
        assert (found[0]["outcome"], found[0]["reward"], found[0]["error"]) == (
            "error",
            None,
            "RuntimeError: I cannot",
        )
        for name, why in (("my_agent:plain", "no async"), ("my_agent:x", "not there"), ("nowhere:x", "No module")):
            with pytest.raises(InvalidRequest, match=why):
                roster.agent(name, {})
        with pytest.raises(InvalidRequest, match="no agent 'magic'; use oracle"):
            roster.agent("magic", {})

    async def test_a_reward_that_cannot_be_judged_is_invalid(self, run: Run) -> None:
        found = await run("unjudged", agents.Nop(), tasks=("two",))
        assert (found[0]["outcome"], found[0]["reward"], found[0]["error"]) == ("invalid", 0.0, "no evidence")

    @pytest.mark.slow  # it takes its two seconds
    async def test_an_episode_that_takes_too_long_is_an_error(self, run: Run) -> None:
        async def wait(env: Any, task: dict[str, Any]) -> None:
            await env.call_tool("hang")

        found = await run("talk", agents.Function("test:wait", wait), tasks=("two",), limit=2.0)
        assert found[0]["outcome"] == "error"
        assert "2 s" in found[0]["error"]

    async def test_an_environment_without_tasks_cannot_be_evaluated(self, run: Run) -> None:
        with pytest.raises(NotFound, match=r"'bare@1\.0\.0' has no tasks: it registers no function 'list_tasks'"):
            await run("bare", agents.Nop())

    async def test_a_split_chooses_and_an_unknown_one_is_refused_by_the_environment(self, run: Run) -> None:
        assert list(outcomes(await run("sums", agents.Nop(), split="test"))) == ["six"]
        with pytest.raises(Exception, match="there are train, test"):
            await run("sums", agents.Nop(), split="dev")


Reply = dict[str, Any] | tuple[int, str]


def called(name: str, arguments: str, id: str = "1") -> dict[str, Any]:
    return {"tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


class ScriptedModel:
    """A server that gives its replies in order, and remembers what it was asked."""

    def __init__(self, replies: list[Reply]) -> None:
        self.replies = replies
        self.asked: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(x[16:]) for x in head.lower().splitlines() if x.startswith("content-length: "))
                self.headers.append(head)
                self.asked.append(json.loads(await reader.readexactly(length)))
                reply = self.replies.pop(0)
                status, body = reply if isinstance(reply, tuple) else (200, json.dumps(_completion(reply)))
                extra = "retry-after: 0\r\n" if status == 429 else ""
                content = body.encode()
                writer.write(
                    f"HTTP/1.1 {status} X\r\n{extra}content-length: {len(content)}\r\n\r\n".encode() + content
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return {"choices": [{"message": {"role": "assistant", "content": None, **message}}], "usage": usage}


@asynccontextmanager
async def model(*replies: Reply) -> AsyncIterator[ScriptedModel]:
    made = ScriptedModel(list(replies))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield made


def llm(server: ScriptedModel, max_steps: int | None = None, key: str | None = "sk-secret") -> Llm:
    return Llm(Chat(server.url, key), Model("tiny", 0.0, price_in=1.0, price_out=10.0), max_steps)


class TestLlm:
    async def test_a_model_calls_tools_until_it_is_done(self, run: Run, tmp_path: Path) -> None:
        replies = (called("look", "{}"), called("submit", '{"answer": 2}'))
        async with model(*replies) as server:
            chats = tmp_path / "chats"
            found = await run("sums", llm(server), tasks=("two",), trajectories=chats, model="tiny")
        one = found[0]
        assert (one["outcome"], one["steps"], one["model"]) == ("pass", 2, "tiny")
        assert one["tokens"] == {"in": 200, "out": 20}
        assert one["cost"] == pytest.approx(200 / 1e6 + 20 * 10 / 1e6)
        first, second = server.asked
        assert [tool["function"]["name"] for tool in first["tools"]] == ["submit", "look"]
        assert [message["role"] for message in first["messages"]] == ["system", "user"]
        assert (first["model"], first["temperature"]) == ("tiny", 0.0)
        assert second["messages"][-1] == {"role": "tool", "tool_call_id": "1", "content": "what is 1+1"}
        assert server.headers[0].startswith("POST /v1/chat/completions HTTP/1.1")
        assert "authorization: Bearer sk-secret" in server.headers[0]
        assert json.loads(chats.read_text())["messages"][:3] == second["messages"][:3]

    async def test_bad_calls_are_told_to_the_model(self, run: Run) -> None:
        replies = (
            called("submit", "{"),
            called("submit", "[]"),
            called("nothing", "{}"),
            {"content": "I give up"},
        )
        async with model(*replies) as server:
            found = await run("sums", llm(server), tasks=("two",))
        assert found[0]["outcome"] == "fail"
        told = [message["content"] for message in server.asked[-1]["messages"] if message["role"] == "tool"]
        assert "not JSON" in told[0]
        assert "must be a JSON object" in told[1]
        assert "nothing" in told[2]

    async def test_what_the_model_says_goes_to_the_user_where_there_is_one(self, run: Run) -> None:
        async with model({"content": "hello"}, {"content": "2"}) as server:
            found = await run("talk", llm(server), tasks=("two",))
        assert (found[0]["outcome"], found[0]["steps"]) == ("pass", 2)
        assert server.asked[1]["messages"][-1] == {"role": "user", "content": "which number?"}

    async def test_pictures_are_shown(self, run: Run) -> None:
        async with model(called("picture", "{}"), called("send_message", '{"message": "2"}')) as server:
            await run("talk", llm(server), tasks=("two",))
        *_, tool, user = server.asked[1]["messages"]
        assert tool["role"] == "tool"
        assert user["content"][0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")

    async def test_the_steps_are_limited(self, run: Run) -> None:
        both = {"tool_calls": [*called("look", "{}", "1")["tool_calls"], *called("look", "{}", "2")["tool_calls"]]}
        async with model(*[both] * 9) as server:
            found = await run("sums", llm(server, max_steps=3), tasks=("two",))
        # What was asked for in one reply is done as a whole.
        assert (found[0]["outcome"], found[0]["steps"], len(server.asked)) == ("fail", 4, 2)

    async def test_what_passes_is_tried_again(self, run: Run) -> None:
        async with model((429, "slow down"), (503, "busy"), called("submit", '{"answer": 2}')) as server:
            found = await run("sums", llm(server), tasks=("two",))
        assert found[0]["outcome"] == "pass"
        assert len(server.asked) == 3

    @pytest.mark.parametrize(
        ("reply", "why"),
        [
            ((400, "the key sk-secret is bad"), "answered 400: the key … is bad"),
            ((200, "{}"), "no chat completion"),
            ((200, "<html>"), "no chat completion"),
            ((200, '{"choices": [{"message": "hi"}]}'), "no message"),
        ],
    )
    async def test_an_answer_that_cannot_be_used_is_an_error_without_the_key(
        self, run: Run, reply: tuple[int, str], why: str
    ) -> None:
        async with model(reply) as server:
            found = await run("sums", llm(server), tasks=("two",))
        assert found[0]["outcome"] == "error"
        assert why in found[0]["error"]

    async def test_a_server_that_is_not_there_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The waiting between attempts is what this test would otherwise be about.
        monkeypatch.setattr(chat, "_MAX_WAIT", 0.0)
        client = Chat("http://127.0.0.1:1/v1", None)
        with pytest.raises(chat.ModelFailed, match="did not answer in 6 attempts; the last: cannot connect"):
            await client.complete({})
        await client.close()

    def test_a_model_needs_a_name_and_a_server(self) -> None:
        given = {"model": None, "base_url": None, "seed": 0, "max_steps": None}
        with pytest.raises(InvalidRequest, match="needs --model"):
            roster.agent("llm", {}, **given)
        with pytest.raises(InvalidRequest, match="needs --base-url"):
            roster.agent("llm", {}, **{**given, "model": "x"})


class TestResume:
    async def test_what_is_there_is_not_played_again_and_a_torn_line_is_no_harm(
        self, run: Run, tmp_path: Path
    ) -> None:
        file = tmp_path / "out.jsonl"
        first = await run("sums", agents.Nop(), tasks=("two",))
        file.write_bytes(file.read_bytes() + b'{"task": "six", "rew' + b"a" * 9999)
        run.told.clear()
        found = await run("sums", agents.Nop(), resume=True)
        assert found[0] == first[0]
        assert [one["task"] for one in run.told] == ["two", "six"]
        assert [json.loads(line)["task"] for line in file.read_text().splitlines()] == ["two", "six"]

    async def test_what_broke_off_is_played_again(self, run: Run, tmp_path: Path) -> None:
        (one,) = await run("sums", agents.Nop(), tasks=("two",))
        (tmp_path / "out.jsonl").write_text(json.dumps({**one, "outcome": "error", "reward": None}) + "\n")
        found = await run("sums", agents.Nop(), tasks=("two",), resume=True)
        assert outcomes(found) == {"two": "fail"}

    async def test_results_of_another_agent_or_seed_do_not_mix(self, run: Run) -> None:
        await run("sums", agents.Nop(), tasks=("two",))
        with pytest.raises(Conflict, match="of agent 'nop', and this is 'oracle'"):
            await run("sums", agents.Oracle(), resume=True)
        with pytest.raises(Conflict, match="of seed 0, and this is 1"):
            await run("sums", agents.Nop(), resume=True, seed=1)

    async def test_a_file_with_results_is_not_overwritten(self, run: Run) -> None:
        await run("sums", agents.Nop(), tasks=("two",))
        with pytest.raises(Conflict, match="--resume"):
            await run("sums", agents.Nop(), tasks=("two",))

    def test_two_evaluations_cannot_write_to_one_file(self, tmp_path: Path) -> None:
        file, busy = tmp_path / "x", pytest.raises(Conflict, match="another evaluation writes")
        with results.created(file), busy, results.created(file):
            pass

    @pytest.mark.parametrize("line", ["[]", "{", '{"task": 1}', '{"task": "a", "outcome": "won"}'])
    def test_a_file_of_something_else_is_refused_and_left_alone(self, tmp_path: Path, line: str) -> None:
        file = tmp_path / "x"
        file.write_text(f"{line}\n")
        with pytest.raises(InvalidRequest, match="line 1"), results.resumed(file, {}):
            pass
        assert file.read_text() == f"{line}\n"


class TestEvalOnly:
    async def test_results_carry_it_and_conversations_are_not_exported(self, run: Run, tmp_path: Path) -> None:
        chats = tmp_path / "chats"
        with pytest.raises(Forbidden, match=r"evalOnly.*--force-export"):
            await run("sums", agents.Nop(), tasks=("two",), eval_only=True, trajectories=chats)
        assert not chats.exists()
        assert not (tmp_path / "out.jsonl").exists()
        agent = agents.RandomCalls(0, 1)
        found = await run("sums", agent, tasks=("two",), eval_only=True, trajectories=chats, force_export=True)
        assert found[0]["evalOnly"] is True
        assert json.loads(chats.read_text())["evalOnly"] is True

    async def test_the_oracle_has_no_conversation(self, run: Run, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="no conversation"):
            await run("sums", agents.Oracle(), trajectories=tmp_path / "chats")


class TestCommand:
    @pytest.mark.slow
    def test_a_folder_that_is_for_evaluation_alone(self, tmp_path: Path) -> None:
        project = make_project(tmp_path, "sums", code=SUMS)
        config = json.loads((project / "config.json").read_text())
        (project / "config.json").write_text(json.dumps({**config, "evalOnly": True}))
        home = tmp_path / "home"
        done = aenv("eval", project, "--agent", "oracle", "--json", env=environ(AENV_HOME=str(home)))
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert sorted(one["task"] for one in lines) == ["six", "two"]
        assert all(one["evalOnly"] and len(one["digest"]) == 64 for one in lines)
        (file,) = (home / "evals").glob("sums@1.0.0-oracle-*.jsonl")
        assert [json.loads(line) for line in file.read_text().splitlines()] == lines
        assert str(file) in done.stderr
        assert "100.0%" in done.stderr

    def test_the_table_has_splits_and_intervals(self, url: str, tmp_path: Path) -> None:
        words = ("eval", "sums", "--agent", "oracle", "--system-url", url, "--out", tmp_path / "x")
        done = aenv(*words)
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["split", "test", "train", "all"]
        assert "34.2% to 100.0%" in done.stdout.splitlines()[-1]
        again = aenv(*words[:-2], "--resume", tmp_path / "x", "--json")
        assert len(again.stdout.splitlines()) == 2
        assert len((tmp_path / "x").read_text().splitlines()) == 2

    @pytest.mark.slow
    def test_misuse_is_one_line(self, url: str, tmp_path: Path) -> None:
        for words, message in (
            (("sums",), "missing option '--agent'"),
            (("sums", "--agent", "magic"), "no agent 'magic'"),
            (("sums", "--agent", "nop", "--tasks", "tow"), "no task 'tow'; there are 'two'"),
            (("sums", "--agent", "nop", "--resume", tmp_path / "none"), "no such file"),
            (("a b", "--agent", "nop"), "bad environment name"),
        ):
            done = aenv("eval", *words, "--system-url", url)
            assert done.returncode in (1, 2)
            assert message in done.stderr
            assert len(done.stderr.splitlines()) <= 2
            assert done.stdout == ""

    @pytest.mark.slow
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interruption_leaves_results_and_no_instances(
        self, served: tuple[str, Path], tmp_path: Path, number: signal.Signals
    ) -> None:
        (tmp_path / "slow.py").write_text(
            "import os\n\n\nasync def run(env, task):\n    if task['id'] == 'six':\n"
            "        os.write(1, b'hanging\\n')\n        await env.call_tool('hang')\n"
        )
        out = tmp_path / "x"
        words = ("talk", "--agent", "slow:run", "--concurrency", "1", "--system-url", served[0], "--out", out)
        with serving("eval", *words, cwd=tmp_path) as command:
            command.until("hanging")
            code = command.stop(number)
            assert command.process.stderr
            said = command.process.stderr.read()
        assert code == 130
        assert said.strip() == f"interrupted; go on with --resume {out}"
        assert [json.loads(line)["task"] for line in out.read_text().splitlines()] == ["two"]
        assert asyncio.run(instances(served[0])) == []


async def instances(url: str) -> list[dict[str, Any]]:
    host, port = url.removeprefix("http://").split(":")
    async with Pool() as pool:
        response = await pool.request(Origin(host, int(port)), "GET", "/env-instance/*/list")
        listed: list[dict[str, Any]] = mcp.loads(await response.read())["data"] or []
    return listed


def test_progress_is_shown_on_a_terminal_alone(url: str, tmp_path: Path) -> None:
    parent, child = os.openpty()
    words = [
        str(word) for word in ("eval", "sums", "--agent", "nop", "--system-url", url, "--out", tmp_path / "x")
    ]
    command = [sys.executable, "-m", "aenv.cli", *words]
    variables = environ(AENV_HOME=str(tmp_path / "home"), TERM="xterm", COLUMNS="200")
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=child, text=True)
    os.close(child)
    with os.fdopen(parent, "rb") as terminal:
        shown = terminal.read1(1 << 20).decode()
    assert done.returncode == 0
    assert "2/2" in shown
    assert "0% pass" in shown
    assert "\x1b" not in done.stdout
