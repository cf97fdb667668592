"""An environment that uses only what the published package has too: either runtime serves it as it is."""

from aenv import register_function, register_reward, register_tool


@register_tool
def echo(text: str) -> str:
    """Give the text back."""
    return text


@register_tool
def add(a: int, b: int = 2) -> dict:
    """Add two numbers."""
    return {"sum": a + b}


@register_tool
def fail(message: str) -> str:
    """Raise an error with this message."""
    raise ValueError(message)


@register_function
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@register_function
async def describe(name: str = "nobody") -> dict:
    """Describe someone."""
    return {"name": name, "friends": None}


@register_function
def explode() -> None:
    """Raise an error."""
    raise RuntimeError("the function gave up")


@register_reward
def judge_answer(answer: str) -> float:
    """One point for the right answer."""
    return 1.0 if answer == "42" else 0.0
