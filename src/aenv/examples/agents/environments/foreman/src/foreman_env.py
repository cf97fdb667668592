"""An agent that splits a job among others: each part is done by a child, all at the same time."""

import asyncio
import os
from collections.abc import AsyncIterator

from aenv import Chat, Environment, register_agent


async def asked(role: str, message: str) -> str:
    """What the model says in a role."""
    said = [{"role": "system", "content": role}, {"role": "user", "content": message}]
    async with Chat(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]) as model:
        return str((await model.complete({"model": "script", "messages": said})).message["content"])


async def delegated(part: str) -> str:
    """What a worker of its own makes of a part."""
    async with Environment("role-player@^1", environment_variables={"ROLE": "worker"}) as worker:
        return (await worker.call_tool("chat", {"message": part})).text


@register_agent
async def foreman(message: str) -> AsyncIterator[str]:
    """Plans, delegates and reports."""
    parts = (await asked("planner", message)).split("; ")
    yield f"plan: {', '.join(parts)}\n"
    results = await asyncio.gather(*map(delegated, parts))
    for part, result in zip(parts, results, strict=True):
        yield f"{part}: {result}\n"
