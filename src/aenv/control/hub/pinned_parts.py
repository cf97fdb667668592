"""Parts of composed environments: a push takes one version of each, for good, and shows their tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...base import composition
from ...base.composition import NamedPart
from ...base.config import UsedEnvironment
from ...base.config.project import read_parts
from ...base.errors import NotFound
from ..serving.accounts import Caller
from .environment_records import EnvironmentRecord
from .environments import Environments


@dataclass(frozen=True)
class PinnedPart:
    """A part, and the version that was taken."""

    used: UsedEnvironment
    taken: EnvironmentRecord

    @property
    def described(self) -> str:
        return f"{self.used.name}: {self.taken.ref}"


async def pinned(config: dict[str, Any], environments: Environments, caller: Caller) -> tuple[PinnedPart, ...]:
    """The parts that a config.json names, each the latest that the caller may use. NotFound names the field."""
    found = []
    for used in read_parts(config):
        try:
            found.append(PinnedPart(used, await environments.find(used.environment, caller)))
        except NotFound as error:
            raise NotFound(f"field 'uses': the part {used.name!r}: {error.message}") from None
    return tuple(found)


async def offered_tools(
    own: Sequence[dict[str, Any]], parts: Sequence[PinnedPart], environments: Environments
) -> list[dict[str, Any]]:
    """All tools of the whole, as instances will call them."""
    described = {
        NamedPart(part.used.name, bool(part.used.prefix)): {
            tool["name"]: tool for tool in (await environments.about(part.taken)).tools
        }
        for part in parts
    }
    names = composition.tool_names(
        [tool["name"] for tool in own], {part: list(tools) for part, tools in described.items()}
    )
    return [*own, *({**described[part][short], "name": name} for name, (part, short) in names.items())]
