"""Import paths that published code relies on; re-exports only."""

from ..base.errors import (
    EnvironmentError,
    NetworkError,
    ToolError,
    ToolTimeoutError,
    UnrecoverableEnvironmentError,
)
from ..client.environment import Environment
from ..inside.author.decorators import register_function, register_reward, register_tool
from ..inside.author.published_registry import get_function_registry, get_registry

__all__ = [
    "Environment",
    "EnvironmentError",
    "NetworkError",
    "ToolError",
    "ToolTimeoutError",
    "UnrecoverableEnvironmentError",
    "get_function_registry",
    "get_registry",
    "register_function",
    "register_reward",
    "register_tool",
]
