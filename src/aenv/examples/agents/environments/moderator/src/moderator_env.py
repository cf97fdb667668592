"""An agent that lets two others debate, and has a third one decide."""

from collections.abc import AsyncIterator

from aenv import Environment, register_agent

ROUNDS = 2


def player(role: str) -> Environment:
    return Environment("role-player@^1", environment_variables={"ROLE": role})


@register_agent
async def moderator(message: str) -> AsyncIterator[str]:
    """Moderates a debate about a claim."""
    async with player("for") as pro, player("against") as contra, player("judge") as judge:
        last = message
        for _ in range(ROUNDS):
            for name, side in (("for", pro), ("against", contra)):
                last = (await side.call_tool("chat", {"message": last})).text
                yield f"{name}: {last}\n"
        yield f"verdict: {(await judge.call_tool('chat', {'message': last})).text}\n"
