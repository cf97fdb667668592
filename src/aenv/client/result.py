"""What a tool call gives back to an agent or trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ToolResult:
    """A tool's answer: content parts as dicts, whether it is an error, and structured data if there is any."""

    content: list[dict[str, Any]]
    is_error: bool = False
    structured: Any = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The text parts, one a line."""
        return "\n".join(part["text"] for part in self.content if part.get("type") == "text")


@dataclass(frozen=True)
class Progress:
    """How far a running call is."""

    progress: float
    total: float | None = None
    message: str | None = None


def from_mcp(result: Mapping[str, Any]) -> ToolResult:
    """The `result` of an MCP `tools/call`, in our form."""
    return ToolResult(
        content=[_part(part) for part in result.get("content", ())],
        is_error=bool(result.get("isError", False)),
        structured=result.get("structuredContent"),
    )


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part without nulls and protocol extras; images keep their mime type."""
    dropped = ("annotations", "_meta")
    return {key: value for key, value in part.items() if value is not None and key not in dropped}
