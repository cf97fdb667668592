"""The agent that asks a model: a loop of chat completions with tool calling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import ToolError
from ..client.chat import Chat
from ..client.result import ToolResult
from . import agents, bounded_json
from .episodes import AgentUsage
from .task_instances import WatchedEnvironment
from .trajectory import SampledTokens

_SYSTEM = (
    "You solve a task in an environment by calling its tools. Look before you act, and check what you did. "
    "When the task is solved, say so in one sentence without calling a tool."
)


@dataclass(frozen=True)
class Model:
    """Which model, and what a million of its tokens costs, where that is known."""

    name: str
    temperature: float | None = None
    price_in: float | None = None
    price_out: float | None = None
    max_tokens: int | None = None
    """What it may write in one reply."""

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        if self.price_in is None and self.price_out is None:
            return None
        return (tokens_in * (self.price_in or 0.0) + tokens_out * (self.price_out or 0.0)) / 1e6


class Llm:
    """Lets the model call tools until it stops, the environment says that it is done, or the steps are used up.

    Where the environment has a tool `…send_message`, it is how one talks to the other side: what the model says
    without a call goes there, and the answer is the next message of the user.
    """

    validation, asks = False, True

    def __init__(self, chat: Chat, model: Model, max_steps: int | None = None) -> None:
        self.name = "llm"
        self._chat = chat
        self._model = model
        self._max_steps = max_steps

    async def close(self) -> None:
        await self._chat.close()

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        spent.begin({"system": _SYSTEM, **task})
        tools = await env.openai_tools()
        mouth = _mouth(tools)
        most = agents.steps_of(task, self._max_steps)
        for _ in range(most):
            message = await self._say(spent, tools)
            calls = message.get("tool_calls") or []
            if calls:
                done = await _call_all(env, spent, calls)
            elif mouth and message.get("content"):
                done = await _send(env, spent, mouth, str(message["content"]))
            else:
                return
            if done or env.steps >= most:
                return

    async def _say(self, spent: AgentUsage, tools: list[dict[str, Any]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model.name, "messages": spent.messages}
        if tools:
            body["tools"] = tools
        if self._model.temperature is not None:
            body["temperature"] = self._model.temperature
        if self._model.max_tokens is not None:
            body["max_tokens"] = self._model.max_tokens
        reply = await self._chat.complete(body)
        spent.tokens_in = (spent.tokens_in or 0) + reply.tokens_in
        spent.tokens_out = (spent.tokens_out or 0) + reply.tokens_out
        spent.cost = self._model.cost(spent.tokens_in, spent.tokens_out)
        kept = {key: reply.message[key] for key in ("content", "tool_calls") if reply.message.get(key)}
        sampled = SampledTokens(reply.token_ids, reply.logprobs, reply.prompt_token_ids)
        has_tokens = reply.token_ids or reply.logprobs
        spent.say({"role": "assistant", "content": None, **kept}, sampled if has_tokens else None)
        return reply.message


def _mouth(tools: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """The tool with which one talks to the other side, and the name of its one text."""
    for tool in tools:
        function = tool["function"]
        properties = function["parameters"].get("properties", {})
        texts = [name for name, schema in properties.items() if schema.get("type") == "string"]
        required = function["parameters"].get("required", [])
        if function["name"].endswith("send_message") and len(texts) >= 1 and required in ([], texts[:1]):
            return function["name"], texts[0]
    return None


async def _send(env: WatchedEnvironment, spent: AgentUsage, mouth: tuple[str, str], text: str) -> bool:
    tool, parameter = mouth
    result = await _called(env, tool, {parameter: text})
    said = result.structured.get("observation") if isinstance(result.structured, dict) else None
    spent.say({"role": "user", "content": said if isinstance(said, str) else result.text})
    return agents.is_done(result)


async def _call_all(env: WatchedEnvironment, spent: AgentUsage, calls: Any) -> bool:
    """Do what the model asked for, one after the other; whether the environment is done."""
    done, pictures = False, []
    for call in calls if isinstance(calls, list) else []:
        function = (call.get("function") or {}) if isinstance(call, dict) else {}
        result = await _asked(env, function)
        done = done or agents.is_done(result)
        pictures += [part for part in result.content if part.get("type") == "image"]
        answer = {"role": "tool", "tool_call_id": call.get("id") or "", "content": result.text}
        spent.say(answer)
    if pictures:
        # Answers of tools are texts; a picture can only be shown by the user.
        shown = [
            {
                "type": "image_url",
                "image_url": {"url": f"data:{one.get('mimeType', 'image/png')};base64,{one['data']}"},
            }
            for one in pictures
        ]
        spent.say({"role": "user", "content": shown})
    return done


async def _asked(env: WatchedEnvironment, function: dict[str, Any]) -> ToolResult:
    name = str(function.get("name") or "")
    try:
        arguments = bounded_json.loads(function.get("arguments") or "{}")
    except (ValueError, TypeError) as error:
        return _failed(f"the arguments of {name!r} are not JSON: {error}")
    if not isinstance(arguments, dict):
        return _failed(f"the arguments of {name!r} must be a JSON object")
    return await _called(env, name, arguments)


async def _called(env: WatchedEnvironment, tool: str, arguments: dict[str, Any]) -> ToolResult:
    try:
        return await env.call_tool(tool, arguments)
    except ToolError as error:  # an unknown name, a call without an answer: for the model to know
        return _failed(error.message)


def _failed(text: str) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}], is_error=True)
