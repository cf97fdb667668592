"""Capture: agents ask their model by an endpoint that forwards and records, and keeps every secret."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aenv.base.addresses import parse_url
from aenv.base.http1 import Pool
from aenv.client.chat import Chat
from aenv.rollouts import Outcome, RolloutResult, Runner, journal, transcripts
from aenv.rollouts.capture import Capture, endpoint
from aenv.rollouts.capture.endpoint import ModelAccess
from aenv.rollouts.capture.exchange_log import ExchangeLog
from aenv.rollouts.capture.model_exchange import conversations
from aenv.rollouts.exports import chats, exchange
from aenv.rollouts.results import RunIdentity
from aenv.rollouts.trajectory import Trajectory, TrajectoryHead
from tests.command_line import environ, serving
from tests.evaluations import lines
from tests.rollout_worlds import gateway
from tests.streaming_models import Scripted, Silent, Streamed, StreamingModel, completion, post, streaming_model
from tests.venvs import judge

KEY = "sk-the-real-key-of-the-server"
USER = {"role": "user", "content": "hi"}


def delta(change: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": change, **more}]}


def block(index: int, **change: str) -> list[dict[str, Any]]:
    return [{"type": "content_block_delta", "index": index, "delta": change}]


class Recording:
    """A capture with one rollout, and its journal."""

    def __init__(self, model: StreamingModel, capture: Capture, access: ModelAccess, file: Path) -> None:
        self.model, self.capture, self.access, self.file = model, capture, access, file

    async def ask(self, path: str = "chat/completions", body: Any = None, **more: Any) -> tuple[int, Any]:
        request = {"model": "m", "messages": [USER], **more} if body is None else body
        key = self.access.key
        header = ("x-api-key", key) if path == "messages" else ("authorization", f"Bearer {key}")
        return await post(self.access.url, path, request, header)

    @property
    def trajectory(self) -> Trajectory:
        return journal.read(self.file).trajectories["r1"]

    @property
    def exchanges(self) -> list[Any]:
        return self.trajectory.exchanges


@pytest.fixture
def recording(tmp_path: Path) -> Any:
    @asynccontextmanager
    async def opened(*replies: Scripted, **options: Any) -> AsyncIterator[Recording]:
        file = tmp_path / "run.jsonl"
        with journal.opened(file, RunIdentity("sums@1.0.0")) as written:
            head = TrajectoryHead("r1", "two")
            written.append(head.as_json())
            async with streaming_model(*replies) as model, Capture(model.url, KEY, **options) as capture:
                yield Recording(model, capture, capture.admit(ExchangeLog(written, Trajectory(head))), file)

    return opened


class TestForwarding:
    async def test_the_request_goes_on_with_the_servers_own_key_and_both_are_recorded(
        self, recording: Any
    ) -> None:
        tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
        async with recording(completion("three")) as it:
            status, reply = await it.ask(tools=[tool], temperature=0.5)
            assert (status, reply["choices"][0]["message"]["content"]) == (200, "three")
            asked = it.model.asked[0]
            assert asked.line == "POST /v1/chat/completions HTTP/1.1"
            assert asked.headers["authorization"] == f"Bearer {KEY}"
            assert asked.body == {"model": "m", "messages": [USER], "tools": [tool], "temperature": 0.5}
        (found,) = it.exchanges
        assert (found.api, found.status, found.error, found.usage) == ("chat/completions", 200, "", (7, 2))
        assert found.request == asked.body
        assert found.reply == reply
        assert found.seconds > 0 and found.at > 1e9

    async def test_no_secret_is_in_the_journal_or_the_log_even_when_agent_and_server_say_them(
        self, recording: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG")
        async with recording((401, json.dumps({"error": {"message": f"wrong key {KEY}"}}))) as it:
            status, reply = await it.ask(body={"messages": [{"role": "user", "content": it.access.key}]})
            assert (status, reply) == (401, {"error": {"message": "wrong key ***"}})
        text = it.file.read_text()
        assert '"***"' in text
        assert KEY not in text + caplog.text and it.access.key not in text + caplog.text
        assert it.access.key not in repr(it.access)

    async def test_a_key_that_is_no_rollouts_is_refused_in_the_words_of_each_api(self, recording: Any) -> None:
        async with recording() as it:
            url = it.access.url
            status, reply = await post(url, "chat/completions", {}, ("authorization", "Bearer sk-aenv-wrong"))
            assert (status, reply["error"]["code"]) == (401, "invalid_api_key")
            status, reply = await post(url, "messages", {}, ("x-api-key", "wrong"))
            assert (status, reply["type"], reply["error"]["type"]) == (401, "error", "authentication_error")
            assert (await post(url, "responses", {}))[0] == 401
            await it.capture.dismiss(it.access.key)
            assert (await it.ask())[0] == 401
            assert it.model.asked == []
        assert lines(it.file, "exchange") == []

    async def test_models_are_listed_and_other_paths_are_not_there(self, recording: Any) -> None:
        async with recording({"data": [{"id": "m"}]}) as it:
            origin, _ = parse_url(it.access.url)
            own = [("x-api-key", it.access.key)]
            async with Pool() as pool:
                response = await pool.request(origin, "GET", "/v1/models?limit=1", own)
                assert json.loads(await response.read()) == {"data": [{"id": "m"}]}
                assert response.header(b"set-cookie") is None
                response = await pool.request(origin, "GET", "/v1/chat/completions", own)
                assert response.status == 405
            assert it.model.asked[0].line == "GET /v1/models?limit=1 HTTP/1.1"
            assert it.model.asked[0].headers["x-api-key"] == KEY
            for path in ("files", "../admin", "models/../../admin"):
                assert (await it.ask(path))[0] == 404
            assert len(it.model.asked) == 1
        assert lines(it.file, "exchange") == []

    async def test_parameters_are_added_where_the_agent_sets_none(self, recording: Any) -> None:
        async with recording(completion(), completion(), parameters={"logprobs": True}) as it:
            await it.ask()
            await it.ask(logprobs=False)
            assert [asked.body["logprobs"] for asked in it.model.asked] == [True, False]

    async def test_a_body_that_is_too_large_or_no_json_is_refused(
        self, recording: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(endpoint, "MAX_REQUEST_BYTES", 1000)
        async with recording() as it:
            assert (await it.ask(body={"a": "x" * 2000}))[0] == 413
            assert (await it.ask(body=b"[1]"))[1]["error"]["code"] == "invalid_json"
            assert it.model.asked == []


class TestStreams:
    async def test_pieces_come_as_they_are_sent_and_are_recorded_whole(self, recording: Any) -> None:
        last = asyncio.Event()
        events = [
            {"id": "c1", "prompt_token_ids": [1], **delta({"role": "assistant", "content": ""})},
            delta({"content": "he"}, logprobs={"content": [{"logprob": -0.5}]}, token_ids=[5]),
            delta({"content": "llo"}, logprobs={"content": [{"logprob": -1.5}]}, token_ids=[6]),
            delta({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "add", "arguments": '{"a"'}}]}),
            delta({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
            {**delta({}, finish_reason="tool_calls"), "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            "[DONE]",
        ]
        async with recording(Streamed(events, last)) as it:
            origin, path = parse_url(it.access.url)
            body = json.dumps({"messages": [USER], "stream": True}).encode()
            async with Pool() as pool:
                own = [("authorization", f"Bearer {it.access.key}")]
                response = await pool.request(origin, "POST", f"{path}/chat/completions", own, body)
                got = b""
                async for piece in response:  # the last event is sent only when the others are here
                    got += piece
                    if b"finish_reason" in got:
                        last.set()
            assert got.endswith(b"data: [DONE]\n\n") and got.count(b"data: ") == 7
        (found,) = it.exchanges
        message = found.reply["choices"][0]["message"]
        assert message["content"] == "hello"
        assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
        assert (found.tokens.ids, found.tokens.logprobs, found.tokens.prompt_ids) == ([5, 6], [-0.5, -1.5], [1])
        assert (found.usage, found.error) == ((3, 2), "")
        assert 0 < found.first_seconds <= found.seconds

    async def test_a_stream_of_anthropics_kind(self, recording: Any) -> None:
        begun = {"id": "m1", "role": "assistant", "content": [], "usage": {"input_tokens": 4}}
        tool = {"type": "tool_use", "id": "t", "name": "add", "input": {}}
        events = [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *block(0, text="I "),
            *block(0, text="add"),
            {"type": "content_block_start", "index": 1, "content_block": tool},
            *block(1, partial_json='{"a":'),
            *block(1, partial_json="1}"),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        request = {"model": "m", "system": "be brief", "stream": True, "messages": [USER]}
        async with recording(Streamed(events)) as it:
            assert (await it.ask("messages", request))[0] == 200
            assert it.model.asked[0].headers["x-api-key"] == KEY
        (found,) = it.exchanges
        assert (found.error, found.usage, found.reply["stop_reason"]) == ("", (4, 9), "tool_use")
        (talk,) = conversations(it.exchanges)
        assert [turn.message["role"] for turn in talk.turns] == ["system", "user", "assistant"]
        said = talk.turns[-1].message
        assert (said["content"], said["tool_calls"][0]["function"]["arguments"]) == ("I add", '{"a": 1}')

    async def test_a_stream_of_responses(self, recording: Any) -> None:
        output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two"}]}]
        done = {"id": "r1", "output": output, "usage": {"input_tokens": 3, "output_tokens": 1}}
        events = [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.completed", "response": done},
        ]
        async with recording(Streamed(events), {**done, "id": "r2"}) as it:
            await it.ask("responses", {"input": "1+1?", "instructions": "count", "stream": True})
            await it.ask("responses", {"input": "again", "previous_response_id": "r1"})
        assert [found.usage for found in it.exchanges] == [(3, 1), (3, 1)]
        (talk,) = conversations(it.exchanges)
        roles = [turn.message["role"] for turn in talk.turns]
        assert roles == ["system", "user", "assistant", "user", "assistant"]
        assert [turn.is_learned for turn in talk.turns] == [False, False, True, False, True]

    async def test_a_stream_that_breaks_is_told_to_the_agent_and_recorded_as_far_as_it_came(
        self, recording: Any
    ) -> None:
        piece = {"choices": [{"index": 0, "delta": {"content": "half"}}]}
        async with recording(Streamed([piece], broken=True), Streamed([piece])) as it:
            status, data = await it.ask(stream=True)
            assert (status, b'"upstream_failed"' in data) == (200, True)
            await it.ask(stream=True)
        broken, short = it.exchanges
        assert broken.reply["choices"][0]["message"]["content"] == "half"
        assert "closed" in broken.error or "ended" in broken.error
        assert short.error == "the stream ended before the reply did"
        assert conversations(it.exchanges) == []


class TestFaults:
    async def test_a_server_that_is_not_there(self) -> None:
        async with Capture("http://127.0.0.1:1/v1") as nowhere:
            head = TrajectoryHead("r1", "two")
            log = ExchangeLog(journal.Journal(), Trajectory(head))
            access = nowhere.admit(log)
            status, reply = await post(access.url, "chat/completions", {"messages": []}, ("x-api-key", access.key))
            assert (status, reply["error"]["type"]) == (502, "server_error")
            assert "cannot connect to http://127.0.0.1:1" in reply["error"]["message"]
            assert log.failure and log.failure.is_passing  # type: ignore[union-attr]
            status, reply = await post(access.url, "messages", {"messages": []}, ("x-api-key", access.key))
            assert (status, reply["error"]["type"]) == (502, "api_error")

    async def test_a_server_that_does_not_answer_is_given_up(self, recording: Any) -> None:
        silent = Silent()
        # Long enough for a busy machine to get as far as asking.
        async with recording(silent, timeout=1.0) as it:
            status, reply = await it.ask()
            assert (status, reply["error"]["code"]) == (504, "upstream_timeout")
            await silent.gone.wait()
        (found,) = it.exchanges
        assert (found.status, found.error.endswith("nothing came for 1 s")) == (None, True)

    async def test_an_agent_that_goes_away_takes_its_request_with_it(self, recording: Any) -> None:
        silent = Silent()
        async with recording(silent, completion()) as it:
            asking = asyncio.create_task(it.ask())
            await silent.asked.wait()
            asking.cancel()
            await silent.gone.wait()
            assert (await it.ask())[0] == 200
        gone, good = it.exchanges
        assert (gone.status, gone.error) == (None, "the agent did not wait for the reply")
        assert good.is_whole

    async def test_what_a_rollout_has_asked_is_given_up_when_it_ends(self, recording: Any) -> None:
        silent = Silent()
        async with recording(silent) as it:
            asking = asyncio.create_task(it.ask())
            await silent.asked.wait()
            await it.capture.dismiss(it.access.key)
            await silent.gone.wait()
            await asyncio.gather(asking, return_exceptions=True)
        assert [found.error for found in it.exchanges] == ["the agent did not wait for the reply"]

    async def test_a_redirect_is_not_followed(self, recording: Any) -> None:
        async with recording((307, "")) as it:
            status, reply = await it.ask()
            assert (status, reply["error"]["code"]) == (502, "upstream_redirects")


class TestConversations:
    async def test_messages_that_were_recorded_are_not_written_again(self, recording: Any) -> None:
        calls = [{"id": "t", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
        async with recording(completion(None, calls), completion("done"), completion("aside")) as it:
            talk: list[Any] = [{"role": "system", "content": "x" * 500}, USER]
            _, reply = await it.ask(messages=talk)
            talk += [reply["choices"][0]["message"], {"role": "tool", "tool_call_id": "t", "content": "2"}]
            await it.ask(messages=talk)
            await it.ask(messages=[{"role": "user", "content": "something else"}])
        raw = lines(it.file, "exchange")
        assert (raw[1]["after"], len(raw[1]["request"]["messages"])) == ([1, 2], 2)
        assert "after" not in raw[2]
        assert it.exchanges[1].request["messages"] == talk
        main, aside = conversations(it.exchanges)
        assert [turn.message["role"] for turn in main.turns] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert len(aside.turns) == 2
        assert it.trajectory.turns == main.turns

    async def test_only_what_the_model_said_is_learned(self, recording: Any) -> None:
        shown = [USER, {"role": "assistant", "content": "an example"}, USER]
        sampled = {"logprobs": {"content": [{"logprob": -0.25}]}, "token_ids": [9]}
        reply = completion("mine")
        reply["choices"][0] |= sampled
        async with recording(reply) as it:
            await it.ask(messages=shown)
        row = chats.chat(it.trajectory)
        assert row["loss_mask"] == [0, 0, 0, 1]
        assert row["tokens"] == [None, None, None, {"ids": [9], "logprobs": [-0.25]}]

    async def test_an_export_as_a_journal_keeps_the_exchanges(self, recording: Any, tmp_path: Path) -> None:
        tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
        async with recording(completion()) as it:
            await it.ask(tools=[tool])
        exchange.save(tmp_path / "copy.jsonl", [it.trajectory], "journal")
        (copied,) = exchange.load(tmp_path / "copy.jsonl")
        assert copied.exchanges == it.exchanges
        assert chats.chat(copied)["tools"] == [tool]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("capture")) as (url, _):
        yield url


class TestRunner:
    async def run(self, url: str, model: str, agent: Any, **options: Any) -> RolloutResult:
        async with Runner(2, url=url, retries=0, capture=model, capture_key=KEY) as runner:
            (found,) = await runner.run("trouble", agent, tasks=["two"], **options)
        return found

    async def test_an_agent_of_which_nothing_is_known_gives_a_record_to_train_on(
        self, served: str, tmp_path: Path
    ) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            variables = env.model.variables
            async with Chat(variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]) as chat:
                tools = await env.openai_tools()
                reply = await chat.complete({"model": "m", "messages": [USER], "tools": tools})
                call = reply.message["tool_calls"][0]["function"]
                await env.call_tool(call["name"], json.loads(call["arguments"]))

        call = {"id": "t", "type": "function", "function": {"name": "submit", "arguments": '{"answer": 2}'}}
        async with streaming_model(completion(None, [call])) as model:
            found = await self.run(served, model.url, agent, out=tmp_path / "run.jsonl")
        assert (found.outcome, found.reward) == (Outcome.REWARD, 1.0)
        assert found.tokens and (found.tokens.read, found.tokens.written) == (7, 2)
        assert found.trajectory and len(found.trajectory.exchanges) == 1
        assert [one.name for one in found.trajectory.calls] == ["submit"]
        assert [message["role"] for message in found.trajectory.messages] == ["user", "assistant"]
        assert KEY not in (tmp_path / "run.jsonl").read_text()
        again = journal.results(tmp_path / "run.jsonl")[0].trajectory
        assert again and again.messages == found.trajectory.messages

    async def test_a_model_that_is_away_is_no_fault_of_the_agents(self, served: str) -> None:
        async def hides(env: Any, task: dict[str, Any]) -> None:
            await post(env.model.url, "chat/completions", {"messages": []}, ("x-api-key", env.model.key))
            await env.call_tool("submit", {"answer": 2})

        found = await self.run(served, "http://127.0.0.1:1/v1", hides)
        assert (found.outcome, found.reward) == (Outcome.INFRA_ERROR, None)
        assert "cannot connect" in found.reason

    async def test_an_agent_that_asked_again_with_success_has_lost_nothing(self, served: str) -> None:
        def asks_twice(env: Any, task: dict[str, Any]) -> None:
            assert env.model.url.endswith("/v1")
            asyncio.run(_ask_twice(env.model))
            env.call_tool("submit", {"answer": 2})

        async with streaming_model((503, "{}"), completion()) as model:
            found = await self.run(served, model.url, asks_twice)
        assert found.reward == 1.0

    async def test_without_a_capture_there_is_no_model(self, served: str) -> None:
        async def agent(env: Any, task: dict[str, Any]) -> None:
            env.model.url  # noqa: B018

        async with Runner(url=served) as runner:
            (found,) = await runner.run("trouble", agent, tasks=["two"])
        assert (found.outcome, "capture=" in found.reason) == (Outcome.AGENT_ERROR, True)


async def _ask_twice(access: ModelAccess) -> None:
    for status in (503, 200):
        found = await post(access.url, "chat/completions", {"messages": []}, ("x-api-key", access.key))
        assert found[0] == status


CLIENTS = """
import os, sys
from anthropic import Anthropic
from openai import AuthenticationError, OpenAI

client = OpenAI(max_retries=0)
said = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
print(said.choices[0].message.content)
pieces = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
print("".join(piece.choices[0].delta.content or "" for piece in pieces))
print(client.responses.create(model="m", input="hi").output_text)
message = Anthropic(max_retries=0).messages.create(
    model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
)
print(message.content[0].text)
try:
    OpenAI(api_key="wrong", max_retries=0).models.list()
except AuthenticationError as error:
    print(error.code)
"""


class TestClients:
    @pytest.mark.slow  # the clients are installed
    async def test_the_packages_of_openai_and_anthropic_need_only_the_variables(self, recording: Any) -> None:
        text = {"type": "output_text", "text": "three", "annotations": []}
        item = {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": [text]}
        response = {"id": "r", "object": "response", "output": [item], "model": "m", "status": "completed"}
        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "four"}],
        }
        streamed = Streamed([delta({"content": "tw"}), delta({"content": "o"}, finish_reason="stop"), "[DONE]"])
        python = await asyncio.to_thread(judge, "models")
        async with recording(completion("one"), streamed, response, message) as it:
            running = await asyncio.create_subprocess_exec(
                str(python), "-c", CLIENTS, env={**environ(), **it.access.variables}, stdout=subprocess.PIPE
            )
            printed, _ = await running.communicate()
            assert printed.decode().split() == ["one", "two", "three", "four", "invalid_api_key"]
            keys = [asked.headers.get("authorization") or asked.headers["x-api-key"] for asked in it.model.asked]
            assert keys == [f"Bearer {KEY}"] * 3 + [KEY]
        said = [found.said["content"] for found in it.exchanges]
        assert said == ["one", "two", "three", "four"]
        assert {found.error for found in it.exchanges} == {""}


class TestCommand:
    async def test_each_name_after_the_key_is_a_rollout(self, tmp_path: Path) -> None:
        out = tmp_path / "run.jsonl"
        async with streaming_model(completion("a"), completion("b"), completion("c")) as model:
            with serving("capture", "--upstream", model.url, "--out", out, "--json") as server:
                told = json.loads((await asyncio.to_thread(server.until, "OPENAI_BASE_URL"))[-1])
                url, key = told["OPENAI_BASE_URL"], told["OPENAI_API_KEY"]
                assert told["ANTHROPIC_BASE_URL"] == url.removesuffix("/v1")
                for name in ("", "-task-7", "-task-7"):
                    bearer = ("authorization", f"Bearer {key}{name}")
                    assert (await post(url, "chat/completions", {"messages": [USER]}, bearer))[0] == 200
                assert (await post(url, "chat/completions", {}, ("x-api-key", f"{key}x")))[0] == 401
                server.process.send_signal(signal.SIGINT)
                assert await asyncio.to_thread(server.process.wait) == 0
        found = journal.read(out).trajectories
        assert {name: len(one.exchanges) for name, one in found.items()} == {"capture": 1, "task-7": 2}
        shown = transcripts.transcript(found["task-7"]).splitlines()
        assert shown[-1] == "no result"
        # What was asked, once; and every reply.
        assert [line for line in shown if line in (USER["content"], "b", "c")] == [USER["content"], "b", "c"]
        assert key not in out.read_text()
