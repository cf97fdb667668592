"""AReaL: an agent class and a session, against a stand-in for the routes of its proxy (as in areal 1.0.4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aenv import NotJudged
from aenv.integrations.areal import AenvAgent, run_in_session
from tests.gateways import Gateway
from tests.model_servers import called

OPTIONS: dict[str, Any] = {"final_tools": ("submit_answer",), "split": "train"}


class Proxy:
    """Sessions by key, completions from a script, and the rewards that were set."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.seen: list[tuple[str, str]] = []
        self.rewards: list[float] = []
        self.url = ""

    def answer(self, path: str, key: str, body: dict[str, Any]) -> Any:
        self.seen.append((path, key))
        if path == "/rl/start_session":
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
                writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content))
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


async def test_what_is_missing_is_named(url: str) -> None:
    agent = AenvAgent("gsm-tools@1.0.0", aenv_url=url, **OPTIONS)
    with pytest.raises(ValueError, match="base_url"):
        await agent.run({"task_id": "1-0"})
    with pytest.raises(ValueError, match=r"no task '9-9' in gsm-tools@1\.0\.0; there are 1-0"):
        await agent.run({"task_id": "9-9"}, base_url="http://127.0.0.1:1")
