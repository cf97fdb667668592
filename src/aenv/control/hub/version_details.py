"""What the hub keeps of a version beside its record, which lists show: what it offers, its readme, what is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...base.refs import Ref
from ..stores.base import Document, Put
from .metadata import Offers

KIND = "details"


@dataclass(frozen=True)
class VersionDetails(Offers):
    readme: str = ""
    dependencies: dict[str, list[str]] = field(default_factory=dict)
    previous: str | None = None
    """The version before it, when it was pushed."""
    changes: Mapping[str, Mapping[str, list[str]]] | None = None
    """What is new since then, as `changes.compare` says it."""

    @property
    def offers(self) -> Offers:
        return Offers(self.tools, self.functions, self.rewards)

    @classmethod
    def of(cls, document: Document | None) -> VersionDetails:
        """Nothing, where the store has nothing."""
        value = document.value if document else {}
        return cls(**{each.name: value[each.name] for each in fields(cls) if each.name in value})

    def value(self) -> dict[str, Any]:
        return dict(vars(self))

    def put(self, ref: Ref) -> Put:
        return Put(KIND, str(ref), self.value())
