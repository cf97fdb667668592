"""The published import path; re-exports only."""

from ..inside.author.decorators import register_tool
from ..inside.author.published_registry import Tool, ToolRegistry, get_registry

__all__ = ["Tool", "ToolRegistry", "get_registry", "register_tool"]
