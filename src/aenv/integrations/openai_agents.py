"""The OpenAI Agents SDK (`pip install 'openai-agents>=0.24'`): the tools of an environment as its `FunctionTool`s.

    from agents import Agent, Runner
    from aenv.integrations.openai_agents import tools

    async with Environment("gsm-tools@1.0.0") as env:
        agent = Agent(name="solver", tools=await tools(env))
        print((await Runner.run(agent, "Read the problem and solve it.")).final_output)

The same as `await env.list_openai_tools()`, which makes them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from agents import FunctionTool

from aenv import Environment, SyncEnvironment


@overload
def tools(env: SyncEnvironment) -> list[FunctionTool]: ...


@overload
def tools(env: Environment) -> Coroutine[Any, Any, list[FunctionTool]]: ...


def tools(env: Environment | SyncEnvironment) -> list[FunctionTool] | Coroutine[Any, Any, list[FunctionTool]]:
    """The instance's tools: to be awaited for an Environment, at once for a SyncEnvironment.

    A tool that fails is a text for the model. Images are parts of the output; the SDK hands them to models of the
    Responses API, and leaves them out for chat completions.
    """
    return env.list_openai_tools()
