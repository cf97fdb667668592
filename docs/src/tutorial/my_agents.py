"""An agent of your own: a function that gets the environment and its task."""

from typing import Any

from aenv import Environment


async def halving(env: Environment, task: dict[str, Any]) -> None:
    """Halve the range until the number is found, or the guesses are used up."""
    low, high = (int(word.strip(".")) for word in task["instruction"].split() if word.strip(".").isdigit())
    while low <= high:
        middle = (low + high) // 2
        result = await env.call_tool("guess", {"number": middle})
        if result.is_error or result.structured["observation"] == "correct":
            return
        higher = result.structured["observation"] == "higher"
        low, high = (middle + 1, high) if higher else (low, middle - 1)
