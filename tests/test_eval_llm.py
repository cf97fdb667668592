"""`aenv eval --agent llm`: a model that calls tools, and what it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest
from aenv.client import chat
from aenv.client.chat import Chat
from aenv.rollouts import roster
from aenv.rollouts.llm import Llm, Model
from aenv.rollouts.results import TokenCount
from aenv.rollouts.trajectory import SampledTokens
from tests.evaluations import Run, outcomes, served_projects
from tests.model_servers import Reply, ScriptedModel, called, model

pytestmark = pytest.mark.slow  # evaluations are run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with served_projects(tmp_path_factory.mktemp("eval")) as found:
        yield found


@pytest.fixture
def run(served: tuple[str, Path], tmp_path: Path) -> Run:
    return Run(served[0], tmp_path)


def llm(server: ScriptedModel, max_steps: int | None = None, key: str | None = "sk-secret") -> Llm:
    return Llm(Chat(server.url, key), Model("tiny", 0.0, price_in=1.0, price_out=10.0, max_tokens=64), max_steps)


class TestLlm:
    async def test_a_model_calls_tools_until_it_is_done(self, run: Run, tmp_path: Path) -> None:
        replies = (called("look", "{}"), called("submit", '{"answer": 2}'))
        async with model(*replies) as server:
            (one,) = await run("sums", llm(server), tasks=("two",), model="tiny")
        assert (one.passed, one.steps, one.run.model) == (True, 2, "tiny")
        assert one.tokens == TokenCount(200, 20)
        assert one.cost == pytest.approx(200 / 1e6 + 20 * 10 / 1e6)
        first, second = server.asked
        assert [tool["function"]["name"] for tool in first["tools"]] == ["submit", "look"]
        assert [message["role"] for message in first["messages"]] == ["system", "user"]
        assert (first["model"], first["temperature"], first["max_tokens"]) == ("tiny", 0.0, 64)
        assert second["messages"][-1] == {"role": "tool", "tool_call_id": "1", "content": "what is 1+1"}
        assert server.headers[0].startswith("POST /v1/chat/completions HTTP/1.1")
        assert "authorization: Bearer sk-secret" in server.headers[0]
        assert one.trajectory
        assert one.trajectory.messages[:4] == second["messages"]

    async def test_tokens_and_log_probabilities_are_recorded_where_the_server_tells_them(self, run: Run) -> None:
        choice = {
            "message": {"role": "assistant", "content": "I give up"},
            "token_ids": [7, 8],
            "logprobs": {"content": [{"token": "I", "logprob": -0.5}, {"token": " give", "logprob": -1.5}]},
        }
        answer = {"choices": [choice], "prompt_token_ids": [1, 2, 3]}
        async with model((200, json.dumps(answer))) as server:
            (one,) = await run("sums", llm(server), tasks=("two",))
        assert one.trajectory
        assert one.trajectory.turns[-1].tokens == SampledTokens([7, 8], [-0.5, -1.5], [1, 2, 3])
        assert [turn.tokens for turn in one.trajectory.turns[:-1]] == [None, None]

    async def test_bad_calls_are_told_to_the_model(self, run: Run) -> None:
        replies = (
            called("submit", "{"),
            called("submit", "[]"),
            called("nothing", "{}"),
            {"content": "I give up"},
        )
        async with model(*replies) as server:
            found = await run("sums", llm(server), tasks=("two",))
        assert outcomes(found) == {"two": "fail"}
        told = [message["content"] for message in server.asked[-1]["messages"] if message["role"] == "tool"]
        assert "not JSON" in told[0]
        assert "must be a JSON object" in told[1]
        assert "nothing" in told[2]

    async def test_what_the_model_says_goes_to_the_user_where_there_is_one(self, run: Run) -> None:
        async with model({"content": "hello"}, {"content": "2"}) as server:
            found = await run("talk", llm(server), tasks=("two",))
        assert (found[0].passed, found[0].steps) == (True, 2)
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
        assert (found[0].passed, found[0].steps, len(server.asked)) == (False, 4, 2)

    async def test_what_passes_is_tried_again(self, run: Run) -> None:
        async with model((429, "slow down"), (503, "busy"), called("submit", '{"answer": 2}')) as server:
            found = await run("sums", llm(server), tasks=("two",))
        assert outcomes(found) == {"two": "pass"}
        assert len(server.asked) == 3

    @pytest.mark.parametrize(
        ("reply", "why"),
        [
            ((400, "the key sk-secret is bad"), "answered 400: the key … is bad"),
            ((200, "{}"), "not a chat completion"),
            ((200, "<html>"), "not a chat completion"),
            ((200, '{"choices": [{"message": "hi"}]}'), "no message"),
        ],
    )
    async def test_an_answer_that_cannot_be_used_is_an_error_without_the_key(
        self, run: Run, reply: Reply, why: str
    ) -> None:
        async with model(reply) as server:
            found = await run("sums", llm(server), tasks=("two",))
        assert outcomes(found) == {"two": "agent_error"}
        assert why in found[0].reason

    async def test_a_server_that_is_not_there_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The waiting between attempts is what this test would otherwise be about.
        monkeypatch.setattr(chat, "_MAX_WAIT", 0.0)
        client = Chat("http://127.0.0.1:1/v1", None)
        with pytest.raises(chat.ModelFailed, match="did not answer in 6 attempts; the last: cannot connect"):
            await client.complete({})
        await client.close()

    def test_a_model_needs_a_name_and_a_server(self) -> None:
        with pytest.raises(InvalidRequest, match="needs --model"):
            roster.agent("llm")
        with pytest.raises(InvalidRequest, match="needs --base-url"):
            roster.agent("llm", roster.AgentOptions(model="x"))
