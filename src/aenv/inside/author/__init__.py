"""What environment authors import: decorators, injection, content. Pure: no server, no I/O.

from aenv import register_tool

@register_tool
def search_code(query: str, path: str = ".") -> dict:
    ...
"""

from .content import Audio, Blob, Image, Text
from .decorators import (
    register_function,
    register_health,
    register_prompt,
    register_reset,
    register_resource,
    register_reward,
    register_start,
    register_tool,
)
from .inject import Context, Depends, replaced
from .registry import Registry, active_registry, collecting
from .sidecar import CommandResult, Sidecar, SyncSidecar

__all__ = [
    "Audio",
    "Blob",
    "CommandResult",
    "Context",
    "Depends",
    "Image",
    "Registry",
    "Sidecar",
    "SyncSidecar",
    "Text",
    "active_registry",
    "collecting",
    "register_function",
    "register_health",
    "register_prompt",
    "register_reset",
    "register_resource",
    "register_reward",
    "register_start",
    "register_tool",
    "replaced",
]
