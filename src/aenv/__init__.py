"""Everything as an environment: the public names of aenv, loaded when first used.

from aenv import Environment, register_tool
"""

from __future__ import annotations

__version__ = "1.0.0"

TYPE_CHECKING = False  # as in `typing`, whose import is half of what `import aenv` would cost
if TYPE_CHECKING:
    from typing import Any

    from .base.errors import (
        AEnvError,
        EnvironmentError,
        GrantExceeded,
        NotJudged,
        ToolError,
        UnrecoverableEnvironmentError,
    )
    from .base.logs import setup_logging
    from .base.models import EnvInstance
    from .base.wire import EnvStatus
    from .client.chat import Chat, ModelFailed
    from .client.composed import compose
    from .client.environment import Environment
    from .client.result import ToolResult
    from .client.sync import SyncEnvironment
    from .inside.author.content import Audio, Blob, Image, Text
    from .inside.author.conversations import register_agent
    from .inside.author.decorators import (
        register_function,
        register_health,
        register_prompt,
        register_reset,
        register_resource,
        register_reward,
        register_start,
        register_tool,
    )
    from .inside.author.inject import Context, Depends
    from .inside.author.published_registry import Tool, get_registry
    from .inside.author.sidecar import Sidecar, SyncSidecar
    from .inside.runtime.wrapped_agents import wrap_agent

# Which module holds which names. Importing them here would cost every process what only some need.
_NAMES = {
    "base.errors": (
        *("AEnvError", "EnvironmentError", "GrantExceeded", "NotJudged", "ToolError"),
        "UnrecoverableEnvironmentError",
    ),
    "base.logs": ("setup_logging",),
    "base.models": ("EnvInstance",),
    "base.wire": ("EnvStatus",),
    "client.chat": ("Chat", "ModelFailed"),
    "client.composed": ("compose",),
    "client.environment": ("Environment",),
    "client.result": ("ToolResult",),
    "client.sync": ("SyncEnvironment",),
    "inside.author.content": ("Audio", "Blob", "Image", "Text"),
    "inside.author.conversations": ("register_agent",),
    "inside.author.decorators": (
        *("register_function", "register_health", "register_prompt", "register_reset"),
        *("register_resource", "register_reward", "register_start", "register_tool"),
    ),
    "inside.author.inject": ("Context", "Depends"),
    "inside.author.published_registry": ("Tool", "get_registry"),
    "inside.author.sidecar": ("Sidecar", "SyncSidecar"),
    "inside.runtime.wrapped_agents": ("wrap_agent",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "AEnvError",
    "Audio",
    "Blob",
    "Chat",
    "Context",
    "Depends",
    "EnvInstance",
    "EnvStatus",
    "Environment",
    "EnvironmentError",
    "GrantExceeded",
    "Image",
    "ModelFailed",
    "NotJudged",
    "Sidecar",
    "SyncEnvironment",
    "SyncSidecar",
    "Text",
    "Tool",
    "ToolError",
    "ToolResult",
    "UnrecoverableEnvironmentError",
    "__version__",
    "compose",
    "get_registry",
    "register_agent",
    "register_function",
    "register_health",
    "register_prompt",
    "register_reset",
    "register_resource",
    "register_reward",
    "register_start",
    "register_tool",
    "setup_logging",
    "wrap_agent",
]


_RENAMED = {"SecondPart": "Sidecar", "SyncSecondPart": "SyncSidecar"}
"""Names that pushed environments may import: a bundle never changes."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        warnings.warn(f"aenv.{name} is now aenv.{_RENAMED[name]}", FutureWarning, stacklevel=2)
        name = _RENAMED[name]
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'aenv' has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = value = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
