"""The published import path; re-exports only."""

from ..author.decorators import register_tool
from ..author.published import Tool, ToolRegistry, get_registry

__all__ = ["Tool", "ToolRegistry", "get_registry", "register_tool"]
