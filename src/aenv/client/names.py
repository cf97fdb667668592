"""Tool names: short, full with the environment in front, and as model providers allow them."""

from __future__ import annotations

from collections.abc import Collection

from ..base.errors import ToolError
from ..base.refs import parse
from .formats import legal_names


class ToolNames:
    """Finds the tool that a caller means."""

    def __init__(self, env_name: str, version: str | None) -> None:
        self._env_name = env_name
        resolved = f"{parse(env_name).name}@{version}" if version else env_name
        self._prefixes = {env_name, resolved}

    def needs_list(self, name: str) -> bool:
        """Whether only the list of tools can tell what `name` means: a "/" that is not our prefix's."""
        prefix, slash, _ = name.partition("/")
        return bool(slash) and prefix not in self._prefixes

    def resolve(self, name: str, known: Collection[str]) -> str:
        """The tool's own name. ToolError when the prefix is another environment's."""
        if name in known:
            return name
        if self.needs_list(name):
            raise ToolError(f"Tool '{name}' not found in environment '{self._env_name}'", name)
        short = name.partition("/")[2] or name
        return short if short in known else legal_names(known).get(short, short)
