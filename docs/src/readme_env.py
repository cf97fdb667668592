"""my-env/src/search_env.py"""

from pathlib import Path

from aenv import register_function, register_reward, register_tool


@register_tool
def search_code(query: str, path: str = ".") -> dict:
    """Search for code patterns in files."""
    return {"matches": [str(file) for file in Path(path).glob("*.py") if query in file.read_text()]}


@register_function
def calculate_sum(a: int, b: int) -> int:
    return a + b


@register_reward
def evaluate(status: dict) -> float:
    return 1.0 if status.get("completed") else 0.0
