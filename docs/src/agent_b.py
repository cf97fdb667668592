from aenv import register_agent


@register_agent
async def agent_b(message: str, history: list) -> str:
    """Answers in capitals, and counts."""
    return f"{message.upper()} ({len(history)} messages before)"
