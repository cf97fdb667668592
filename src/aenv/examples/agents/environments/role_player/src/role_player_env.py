"""An agent that plays the role that its variable ROLE says."""

import os

from aenv import Chat, register_agent


@register_agent
async def role_player(message: str, history: list[dict[str, str]]) -> str:
    """Answers in its role."""
    said = [{"role": "system", "content": os.environ["ROLE"]}, *history, {"role": "user", "content": message}]
    async with Chat(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]) as model:
        return str((await model.complete({"model": "script", "messages": said})).message["content"])
