"""Stands in for `openhands.sdk`: a conversation that asks for chat completions and calls tools by MCP."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from mcp_calls import Tools, posted


class LLM:
    def __init__(self, model: str, base_url: str, api_key: str) -> None:
        self.model, self.base_url, self.api_key = model.removeprefix("openai/"), base_url, api_key


class Agent:
    def __init__(self, llm: LLM, tools: list[Any], mcp_config: dict[str, dict[str, Any]]) -> None:
        assert tools == []  # its own would act on this machine
        ((_, server),) = mcp_config.items()
        self.llm, self.tools = llm, Tools(server["url"], server["headers"])


class Conversation:
    def __init__(self, agent: Agent, workspace: str, max_iteration_per_run: int, visualizer: None) -> None:
        self._agent, self._most = agent, max_iteration_per_run
        self.state = SimpleNamespace(events=[])

    def send_message(self, text: str) -> None:
        self.state.events.append({"role": "user", "content": text})

    def run(self) -> None:
        llm, tools = self._agent.llm, self._agent.tools
        offered = [
            {"type": "function", "function": {"name": one["name"], "parameters": one["inputSchema"]}}
            for one in tools.listed()
        ]
        for _ in range(self._most):
            body = {"model": llm.model, "messages": self.state.events, "tools": offered}
            key = {"Authorization": f"Bearer {llm.api_key}"}
            message = posted(f"{llm.base_url}/chat/completions", body, key)["choices"][0]["message"]
            self.state.events.append(message)
            if not message.get("tool_calls"):
                return
            for call in message["tool_calls"]:
                function = call["function"]
                answer = tools.call(function["name"], json.loads(function["arguments"]))
                self.state.events.append({"role": "tool", "tool_call_id": call["id"], "content": answer})

    def close(self) -> None:
        pass


def get_agent_final_response(events: list[dict[str, Any]]) -> str:
    return str(events[-1]["content"])
