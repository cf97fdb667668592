"""Everything as an environment: the public names of aenv, loaded when first used.

from aenv import Environment, register_tool
"""

from __future__ import annotations

__version__ = "1.0.0"

TYPE_CHECKING = False  # as in `typing`, whose import is half of what `import aenv` would cost
if TYPE_CHECKING:
    from typing import Any

    from .author import (
        Audio,
        Blob,
        Context,
        Depends,
        Image,
        SecondPart,
        SyncSecondPart,
        Text,
        register_function,
        register_health,
        register_prompt,
        register_reset,
        register_resource,
        register_reward,
        register_tool,
    )
    from .author.published import Tool, get_registry
    from .client.environment import Environment
    from .client.result import ToolResult
    from .client.sync import SyncEnvironment
    from .errors import AEnvError, EnvironmentError, ToolError, UnrecoverableEnvironmentError
    from .logs import setup_logging
    from .models import EnvInstance
    from .wire import EnvStatus

# name → the module that holds it. Importing them here would cost every process what only some need.
_HOMES = {
    "Audio": "author",
    "Blob": "author",
    "Context": "author",
    "Depends": "author",
    "Image": "author",
    "SecondPart": "author",
    "SyncSecondPart": "author",
    "Text": "author",
    "register_function": "author",
    "register_health": "author",
    "register_prompt": "author",
    "register_reset": "author",
    "register_resource": "author",
    "register_reward": "author",
    "register_tool": "author",
    "Tool": "author.published",
    "get_registry": "author.published",
    "Environment": "client.environment",
    "SyncEnvironment": "client.sync",
    "ToolResult": "client.result",
    "AEnvError": "errors",
    "EnvironmentError": "errors",
    "ToolError": "errors",
    "UnrecoverableEnvironmentError": "errors",
    "setup_logging": "logs",
    "EnvInstance": "models",
    "EnvStatus": "wire",
}

__all__ = [
    "AEnvError",
    "Audio",
    "Blob",
    "Context",
    "Depends",
    "EnvInstance",
    "EnvStatus",
    "Environment",
    "EnvironmentError",
    "Image",
    "SecondPart",
    "SyncEnvironment",
    "SyncSecondPart",
    "Text",
    "Tool",
    "ToolError",
    "ToolResult",
    "UnrecoverableEnvironmentError",
    "__version__",
    "get_registry",
    "register_function",
    "register_health",
    "register_prompt",
    "register_reset",
    "register_resource",
    "register_reward",
    "register_tool",
    "setup_logging",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aenv' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
