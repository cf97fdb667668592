"""Import paths that published code relies on; re-exports only."""

from ..author.decorators import register_function, register_reward, register_tool
from ..author.published import get_function_registry, get_registry
from ..client.environment import Environment
from ..errors import (
    EnvironmentError,
    NetworkError,
    ToolError,
    ToolTimeoutError,
    UnrecoverableEnvironmentError,
)

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
