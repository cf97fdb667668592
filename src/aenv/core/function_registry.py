"""The published import path; re-exports only."""

from ..inside.author.decorators import register_function, register_health, register_reward
from ..inside.author.published_registry import BaseRegistry, FunctionRegistry, get_function_registry

__all__ = [
    "BaseRegistry",
    "FunctionRegistry",
    "get_function_registry",
    "register_function",
    "register_health",
    "register_reward",
]
