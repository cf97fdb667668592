"""The published import path; re-exports only."""

from ..author.decorators import register_function, register_health, register_reward
from ..author.published import BaseRegistry, FunctionRegistry, get_function_registry

__all__ = [
    "BaseRegistry",
    "FunctionRegistry",
    "get_function_registry",
    "register_function",
    "register_health",
    "register_reward",
]
