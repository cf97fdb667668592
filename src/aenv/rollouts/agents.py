"""Agents: the oracle, one that does nothing, one that calls at random, and functions of your own.

Not here: the one that asks a model (`llm.py`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

from ..base.errors import InvalidRequest, ToolError
from ..client.result import ToolResult
from . import samples
from .episodes import AgentUsage
from .task_instances import WatchedEnvironment

MAX_STEPS = 50
"""How many tools an agent calls at most, unless the task or its user says otherwise."""

Play = Callable[[WatchedEnvironment, dict[str, Any]], Awaitable[Any]]


class Oracle:
    """Plays the reference solution, which the environment does itself."""

    name, validation, asks = "oracle", True, False

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        played = await env.call_function("play_gold")
        steps = played.get("steps") if isinstance(played, dict) else None
        if isinstance(steps, list):
            steps = len(steps)
        env.played = steps if isinstance(steps, int) and not isinstance(steps, bool) else None

    async def close(self) -> None:
        pass


class Nop:
    """Does nothing at all."""

    name, validation, asks = "nop", False, False

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        pass

    async def close(self) -> None:
        pass


class RandomCalls:
    """Calls tools at random, the same ones for the same seed, task and attempt."""

    name, validation, asks = "random", False, True

    def __init__(self, seed: int, max_steps: int | None = None) -> None:
        self._seed = seed
        self._max_steps = max_steps

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        attempt = task.get("attempt", 1)
        random = Random(f"{self._seed}:{task['id']}" + (f":{attempt}" if attempt != 1 else ""))
        tools = [tool for tool in await env.list_tools() if not _reaches_out(tool)]
        begin(spent, task)
        for _ in range(steps_of(task, self._max_steps) if tools else 0):
            tool = random.choice(tools)
            arguments = samples.arguments(tool.get("inputSchema", {}), random)
            name = tool["name"].removeprefix(f"{env.env_name}/")
            try:
                result = await env.call_tool(name, arguments)
            except ToolError as error:  # it gave no result, which is one too
                result = ToolResult([{"type": "text", "text": error.message}], is_error=True)
            record(spent, name, arguments, result)
            if is_done(result):
                return

    async def close(self) -> None:
        pass


class Function:
    """A user's `async def run(env, task)`. It may return `{"tokens": {"in", "out"}, "cost", "messages"}`."""

    validation, asks = False, True

    def __init__(self, name: str, function: Play) -> None:
        self.name = name
        self._function = function

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        returned = await self._function(env, task)
        told = returned if isinstance(returned, dict) else {}
        tokens = told.get("tokens")
        if isinstance(tokens, dict):
            spent.tokens_in, spent.tokens_out = int(tokens.get("in", 0)), int(tokens.get("out", 0))
        if isinstance(told.get("cost"), int | float):
            spent.cost = float(told["cost"])
        if isinstance(told.get("messages"), list):
            spent.messages = told["messages"]
            return
        begin(spent, task)
        for call in env.calls:
            record(spent, call["tool"], call["arguments"], ToolResult(call["content"], call["is_error"]))

    async def close(self) -> None:
        pass


def function(name: str) -> Function:
    """The agent that `module:function` names; modules of the current folder are found."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidRequest(f"agent {name!r}: {error}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not inspect.iscoroutinefunction(found):
        what = "is not an async function" if found is not None else "is not there"
        raise InvalidRequest(f"agent {name!r}: {attribute!r} {what}; write 'async def {attribute}(env, task)'")
    return Function(name, found)


def steps_of(task: dict[str, Any], given: int | None) -> int:
    """How many calls the agent may make: as given, else as the task says."""
    told = task.get("max_steps")
    return given or (told if isinstance(told, int) and told > 0 else MAX_STEPS)


def is_done(result: ToolResult) -> bool:
    """Whether a tool says that the episode is over, as a `"done": true` in its structured answer."""
    return isinstance(result.structured, dict) and result.structured.get("done") is True


def begin(spent: AgentUsage, task: dict[str, Any]) -> None:
    """The messages with which every conversation begins."""
    if task.get("system"):
        spent.messages.append({"role": "system", "content": str(task["system"])})
    spent.messages.append({"role": "user", "content": str(task.get("instruction") or "Begin.")})


def record(spent: AgentUsage, tool: str, arguments: dict[str, Any], result: ToolResult) -> None:
    """A call and its answer, as messages of a chat."""
    id = f"call_{len(spent.messages)}"
    called = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
    calls = [{"id": id, "type": "function", "function": called}]
    spent.messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    spent.messages.append({"role": "tool", "tool_call_id": id, "content": result.text})


def _reaches_out(tool: dict[str, Any]) -> bool:
    """Whether a tool says that its answers depend on the world outside: nothing for calls at random."""
    return bool((tool.get("annotations") or {}).get("openWorldHint"))
