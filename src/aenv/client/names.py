"""Tool names: short, full with the environment in front, and as model providers allow them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..base.errors import ToolError
from ..base.refs import parse
from .formats import legal_names


class ToolNames:
    """Finds the tool that a caller means."""

    def __init__(self, env_name: str, version: str | None, tools: Iterable[dict[str, Any]] = ()) -> None:
        self._env_name = env_name
        resolved = f"{parse(env_name).name}@{version}" if version else env_name
        self._prefixes = {env_name, resolved}
        self.learn(tools)

    def learn(self, tools: Iterable[dict[str, Any]]) -> None:
        """Take these for all the tools that there are."""
        own = [tool["name"] for tool in tools]
        self._meant: dict[str, str] = {**legal_names(own), **{name: name for name in own}}

    def needs_list(self, name: str) -> bool:
        """Whether only the list of tools can tell what `name` means: a "/" that is not our prefix's."""
        prefix, slash, _ = name.partition("/")
        return bool(slash) and prefix not in self._prefixes

    def resolve(self, name: str) -> str:
        """The tool's own name. ToolError when the prefix is another environment's."""
        if meant := self._meant.get(name):
            return meant
        if self.needs_list(name):
            raise ToolError(f"Tool '{name}' not found in environment '{self._env_name}'", name)
        short = name.partition("/")[2] or name
        return self._meant.get(short, short)
