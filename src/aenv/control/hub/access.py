"""Who may see an environment, push to it, and say so about others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...base.errors import Forbidden
from ...base.models import Access
from ..serving.accounts import Caller, Role


@dataclass(frozen=True)
class EnvironmentAccess:
    """The rights in one environment and all its versions. `team`: every account sees it; `public`: all do."""

    owner: str
    access: Access = "team"
    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: dict[str, Any]) -> EnvironmentAccess:
        """Read what `value()` gave."""
        return cls(value["owner"], value["access"], tuple(value["readers"]), tuple(value["writers"]))

    def value(self) -> dict[str, Any]:
        return {**asdict(self), "readers": list(self.readers), "writers": list(self.writers)}

    def is_seen_by(self, caller: Caller) -> bool:
        if self.access == "public" or caller.is_admin:
            return True
        if caller.role is Role.ANONYMOUS:
            return False
        return self.access == "team" or caller.user in (self.owner, *self.readers, *self.writers)

    def is_written_by(self, caller: Caller) -> bool:
        return caller.role.includes(Role.USER) and (caller.owns(self.owner) or caller.user in self.writers)

    def check_write(self, caller: Caller, name: str) -> None:
        if not self.is_written_by(caller):
            raise Forbidden(f"environment {name!r} is not yours to change; its owner can make you a writer")

    def lists(self) -> list[str]:
        """The lists in which it stands, such that `lists_of` gives each caller exactly what they may see."""
        if self.access == "private":
            return [f"sees:user:{user}" for user in sorted({self.owner, *self.readers, *self.writers})]
        return ["sees:account", *(["sees:anyone"] if self.access == "public" else [])]


def lists_of(caller: Caller) -> list[str]:
    """The lists that hold what a caller may see, none of it twice."""
    if caller.is_admin:
        return ["all"]
    if caller.role is Role.ANONYMOUS:
        return ["sees:anyone"]
    return ["sees:account", f"sees:user:{caller.user}"]
