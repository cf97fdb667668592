"""Agents: the oracle, one that does nothing, one that calls at random, and functions of your own.

Not here: the one that asks a model (`llm.py`).
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

from ..base.errors import InvalidRequest, ToolError
from ..client.result import ToolResult
from . import samples
from .blocking import in_thread
from .episodes import Agent, AgentUsage
from .journal import encoded
from .task_instances import WatchedEnvironment

MAX_STEPS = 50
"""How many tools an agent calls at most, unless the task or its user says otherwise."""

MAX_MESSAGE = 1_000_000
"""How many characters a message of an agent may have."""
MAX_CONVERSATION = 10_000_000
"""How many bytes all messages that an agent returns may have, as JSON."""

Play = Callable[[Any, dict[str, Any]], Any]


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
        spent.begin(task)
        for _ in range(steps_of(task, self._max_steps) if tools else 0):
            tool = random.choice(tools)
            arguments = samples.arguments(tool.get("inputSchema", {}), random)
            name = tool["name"].removeprefix(f"{env.env_name}/")
            try:
                result = await env.call_tool(name, arguments)
            except ToolError:  # it gave no result, which is one too
                continue
            if is_done(result):
                return

    async def close(self) -> None:
        pass


class Function:
    """A user's function of an environment and a task, async or not. It may return a final message.

    Or `{"tokens": {"in", "out"}, "cost", "messages"}`; what it returns is checked.
    """

    validation, asks = False, True

    def __init__(self, name: str, function: Play) -> None:
        self.name = name
        self.function = function

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        spent.begin(task)
        function = self.function
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            returned = await function(env, task)
        else:
            returned = await in_thread(function, env, task)
        _take(returned, spent)

    async def close(self) -> None:
        pass


def _take(returned: Any, spent: AgentUsage) -> None:
    """What an agent has returned: a final message, or what it used. InvalidRequest for anything else."""
    if returned is None:
        return
    if isinstance(returned, str):
        spent.say({"role": "assistant", "content": _fitting(returned)})
        return
    if inspect.iscoroutine(returned):
        returned.close()
        raise InvalidRequest("the agent returned a coroutine, which needs another environment; use 'async def'")
    if not isinstance(returned, dict):
        raise InvalidRequest(f"the agent returned {type(returned).__name__}; return a text, an object or nothing")
    tokens, cost, messages = (returned.get(name) for name in ("tokens", "cost", "messages"))
    if isinstance(tokens, dict):
        read, written = (_amount(tokens.get(name, 0), f"tokens.{name}") for name in ("in", "out"))
        spent.tokens_in, spent.tokens_out = int(read), int(written)
    if cost is not None:
        spent.cost = _amount(cost, "cost")
    if isinstance(messages, list):
        if not all(isinstance(one, dict) and isinstance(one.get("role"), str) for one in messages):
            raise InvalidRequest("the agent's 'messages' must be a list of objects, each with a 'role'")
        for one in messages:
            _fitting(one.get("content"))
        size = len(encoded(messages))
        if size > MAX_CONVERSATION:
            raise InvalidRequest(
                f"the agent's 'messages' have {size:,} bytes as JSON; at most {MAX_CONVERSATION:,} are taken"
            )
        spent.messages = messages
        if spent.recorder:
            spent.recorder.own_messages(messages)
    elif isinstance(returned.get("content"), str):
        spent.say({"role": "assistant", "content": _fitting(returned["content"])})


def _amount(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidRequest(f"the agent's {name!r} must be a number of 0 or more, and is {value!r}")
    return float(value)


def _fitting(content: Any) -> Any:
    size = len(content) if isinstance(content, str) else len(encoded(content))
    if size > MAX_MESSAGE:
        raise InvalidRequest(f"the agent's message has {size:,} characters; at most {MAX_MESSAGE:,} are taken")
    return content


def as_agent(given: Agent | Play | str, model: str | None = None, seed: int = 0) -> Agent:
    """An agent as it is, a function as an agent, or the one that a name means, with that model and that seed."""
    if isinstance(given, str):
        from .roster import named

        return named(given, model, seed)
    if hasattr(given, "play"):
        return _player(given)
    if not callable(given):
        raise InvalidRequest(f"agent must be a function of (env, task), and is a {type(given).__name__}")
    name = getattr(given, "__qualname__", type(given).__name__)
    return Function(f"{getattr(given, '__module__', '')}:{name}", given)


def _player(given: Any) -> Agent:
    """An object with `play`: a whole agent, or one whose `play` is a function of (env, task)."""
    if all(hasattr(given, name) for name in ("name", "validation", "asks", "close")):
        return cast(Agent, given)
    kind = type(given)
    try:
        inspect.signature(given.play).bind(None, {})
    except TypeError as error:
        raise InvalidRequest(
            f"agent: {kind.__qualname__}.play must take (env, task): {error}; one that takes more is an Agent, "
            "with 'name', 'validation', 'asks' and 'close'"
        ) from None
    name = getattr(given, "name", None)
    return Function(name if isinstance(name, str) else f"{kind.__module__}:{kind.__qualname__}", given.play)


def function(name: str) -> Function:
    """The agent that `module:function` names; modules of the current folder are found."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        raise InvalidRequest(
            f"agent {name!r}: {module_name!r} is not the name of a module; write it as my_agent:play"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        where = "modules are looked for in the current folder and on Python's path (PYTHONPATH)"
        raise InvalidRequest(f"agent {name!r}: {error}; {where}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        what = "is not a function" if found is not None else "is not there"
        raise InvalidRequest(f"agent {name!r}: {attribute!r} {what}; write 'async def {attribute}(env, task)'")
    try:
        inspect.signature(found).bind(None, {})
    except TypeError as error:
        raise InvalidRequest(f"agent {name!r}: {attribute} must take (env, task): {error}") from None
    except ValueError:
        pass  # one in C that does not tell
    return Function(name, found)


def steps_of(task: dict[str, Any], given: int | None) -> int:
    """How many calls the agent may make: as given, else as the task says."""
    told = task.get("max_steps")
    return given or (told if isinstance(told, int) and told > 0 else MAX_STEPS)


def is_done(result: ToolResult) -> bool:
    """Whether a tool says that the episode is over, as a `"done": true` in its structured answer."""
    return isinstance(result.structured, dict) and result.structured.get("done") is True


def _reaches_out(tool: dict[str, Any]) -> bool:
    """Whether a tool says that its answers depend on the world outside: nothing for calls at random."""
    return bool((tool.get("annotations") or {}).get("openWorldHint"))
