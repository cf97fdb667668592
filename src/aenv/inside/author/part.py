"""A part of a composed environment, as the code of that environment uses it: in a reward, say.

    @register_reward
    async def score(context: Context) -> float:
        told = await context.parts["python"].call_tool("run", {"code": "print(total)"})

Not here: how a part is reached, which is the runtime's matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...base.errors import ToolError, ToolServerError
from .content import is_result

Post = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Posts to a path of the part's runtime, and gives the data of the answer."""


class Part:
    """One part. For async functions."""

    def __init__(self, name: str, environment: str, tools: list[dict[str, Any]], post: Post) -> None:
        self.name = name
        self.environment = environment
        self.tools = tools
        """As MCP describes them, under the part's own names."""
        self._post = post

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the tool returns: its structured result or its text where it has none. ToolError when it fails."""
        answer = await self.answer_of(name, arguments or {})
        text = "\n".join(piece["text"] for piece in answer["content"] if piece.get("type") == "text")
        if answer["is_error"]:
            raise ToolError(f"tool {name!r} of the part {self.name!r} failed: {text}", name)
        structured = answer.get("structured")
        if structured is None:
            return text
        return structured["result"] if self._is_wrapped(name) else structured

    def _is_wrapped(self, name: str) -> bool:
        """Whether the result is not an object, as MCP wants it, and was put into one."""
        schemas = (tool.get("outputSchema") or {} for tool in self.tools if tool["name"] == name)
        return any("x-fastmcp-wrap-result" in schema for schema in schemas)

    async def answer_of(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The tool's whole answer, pictures included: `{"content", "is_error", "structured"}`."""
        answer = await self._post(f"/tools/{name}", arguments)
        is_known = isinstance(answer, dict) and isinstance(answer.get("is_error"), bool)
        if not is_known or not is_result(answer.get("content"), answer.get("structured")):
            # It speaks for itself, and is code of others.
            what = f"tool {name!r} of the part {self.name!r}"
            raise ToolServerError(f"{what} answered with something that is not the result of a tool", name)
        return dict(answer)

    async def call_function(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """What the function returns."""
        return await self._post(f"/functions/{name}", arguments or {})

    async def call_reward(self, arguments: Mapping[str, Any] | None = None) -> Any:
        """The reward that the part itself gives."""
        return await self._post("/task/reward", arguments or {})
