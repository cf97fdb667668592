"""my-env/src/search_env.py"""

from pathlib import Path

from aenv import register_function, register_reward, register_tool

SOURCE = Path(__file__).parent


@register_tool
def search_code(query: str, path: str = ".") -> dict:
    """Search for code patterns in files."""
    return {"matches": sorted(file.name for file in (SOURCE / path).glob("*.py") if query in file.read_text())}


@register_function
def calculate_sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@register_reward
def evaluate(status: dict) -> float:
    """Say whether the rollout reached its goal."""
    return 1.0 if status.get("completed") else 0.0
