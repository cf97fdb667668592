"""AReaL: its own workflow and proxy server, and the faults of a proxy that a stand-in has.

In place of a GPU, scripts say what the model says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aenv import NotJudged
from aenv.integrations import areal
from aenv.integrations.areal import AenvAgent, run_in_session
from tests.gateways import Gateway
from tests.integrations.conftest import Run
from tests.model_servers import called

PROGRAM = "areal_workflow.py"
OPTIONS: dict[str, Any] = {"final_tools": ("submit_answer",), "split": "train"}


class Proxy:
    """Sessions by key, completions from a script, and the rewards that were set."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.seen: list[tuple[str, str]] = []
        self.rewards: list[float] = []
        self.refusals = 0
        """How many sessions there is no room for."""
        self.url = ""

    def answer(self, path: str, key: str, body: dict[str, Any]) -> Any:
        self.seen.append((path, key))
        if path == "/rl/start_session":
            self.refusals -= 1
            if self.refusals >= 0:
                return None
            return {"session_id": f"{body['task_id']}-0", "api_key": "session-key"}
        if path == "/rl/set_reward":
            self.rewards.append(body["reward"])
        if path == "/chat/completions":
            message = {"role": "assistant", "content": None, **self.replies.pop(0)}
            return {"choices": [{"message": message}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
        return {"message": "success"}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = {name.lower(): value for name, _, value in (x.partition(": ") for x in head.splitlines())}
                body = json.loads(await reader.readexactly(int(lines["content-length"])))
                said = self.answer(head.split()[1], lines["authorization"].removeprefix("Bearer "), body)
                content = json.dumps(said).encode()
                status = 429 if said is None else 200
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(content)) + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def proxy(*replies: dict[str, Any]) -> AsyncIterator[Proxy]:
    made = Proxy(*replies)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


@pytest.fixture
def url(gateway: Gateway) -> str:
    return f"http://127.0.0.1:{gateway.address.port}"


async def test_the_reward_of_an_episode_is_set_in_the_session_whose_key_the_model_was_asked_with(url: str) -> None:
    calls = called("calculate", '{"expression": "6 * 7"}'), called("submit_answer", '{"answer": "42"}')
    async with proxy(*calls) as served:
        agent = AenvAgent("gsm-tools@1.0.0", aenv_url=url, **OPTIONS)
        reward = await run_in_session(agent, {"task_id": "1-0"}, proxy_url=served.url, admin_key="admin-key")
    assert isinstance(reward, float)
    assert served.rewards == [reward]
    assert served.seen == [
        ("/rl/start_session", "admin-key"),
        ("/chat/completions", "session-key"),
        ("/chat/completions", "session-key"),
        ("/rl/set_reward", "session-key"),
        ("/rl/end_session", "session-key"),
    ]


async def test_a_session_waits_until_the_proxy_has_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(areal, "_FIRST_PAUSE", 0.0)

    class Rewarded:
        async def run(self, data: dict[str, Any], **extra: Any) -> float:
            return 0.5

    async with proxy() as served:
        served.refusals = 2
        assert await run_in_session(Rewarded(), {"id": "1-0"}, proxy_url=served.url, admin_key="admin-key") == 0.5
    assert [path for path, _ in served.seen] == [*["/rl/start_session"] * 3, "/rl/set_reward", "/rl/end_session"]
    assert served.rewards == [0.5]


async def test_an_episode_that_cannot_be_judged_ends_its_session_without_a_reward() -> None:
    class Unjudged:
        async def run(self, data: dict[str, Any], **extra: Any) -> float:
            raise NotJudged("invalid", "the user's model failed")

    async with proxy() as served:
        with pytest.raises(NotJudged):
            await run_in_session(Unjudged(), {"task_id": "1-0"}, proxy_url=served.url, admin_key="admin-key")
    assert [path for path, _ in served.seen] == ["/rl/start_session", "/rl/end_session"]


async def test_a_model_that_writes_no_json_or_calls_no_tool_ends_with_the_environments_reward(url: str) -> None:
    async with proxy(called("calculate", "{"), called("fly", "{}"), {"content": "It is 42."}) as served:
        agent = AenvAgent("gsm-tools@1.0.0", aenv_url=url, **OPTIONS)
        assert await agent.run({"task_id": "1-0"}, base_url=served.url, api_key="k") == 0.0
    assert served.replies == []


async def test_the_model_may_be_named_by_variables_as_in_areals_mode_subproc(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy({"content": "It is 42."}, {"content": "It is 42."}) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
        agent = AenvAgent("gsm-tools@1.0.0", aenv_url=url, **OPTIONS)
        assert await agent.run({"task_id": "1-0"}) == 0.0
        assert await agent.run({"task_id": "1-0"}, base_url=served.url, api_key="of-the-session") == 0.0
    assert [key for _, key in served.seen] == ["of-the-environment", "of-the-session"]


async def test_what_is_missing_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    agent = AenvAgent("gsm-tools@1.0.0", aenv_url=url, **OPTIONS)
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        await agent.run({"task_id": "1-0"})
    with pytest.raises(ValueError, match=r"no task '9-9' in gsm-tools@1\.0\.0; there are 1-0"):
        await agent.run({"task_id": "9-9"}, base_url="http://127.0.0.1:1")


@pytest.mark.timeout(600)
async def test_areals_workflow_plays_a_task_and_gets_what_to_learn_from(run: Run) -> None:
    # LiteLLM, which AReaL imports, looks for prices in the network otherwise.
    said = json.loads((await run("areal", PROGRAM, LITELLM_LOCAL_MODEL_COST_MAP="True")).splitlines()[-1])
    # Four signs were tried on a problem of one step: one of them is right. AReaL hands the reward of the last turn
    # to the ones before.
    assert sorted(one["rewards"] for one in said["inline"]) == [[0.0, 0.0]] * 3 + [[1.0, 1.0]]
    assert said["subproc"]["rewards"] in ([0.0, 0.0], [1.0, 1.0])
    assert said["outside"]["rewards"] == [said["outside"]["reward"]] * 2
    assert all(one["learned"] for one in (*said["inline"], said["subproc"], said["outside"]))
