"""Names that administrators give: those of built-in environments, of the operator's folders, and `aenv-…`.

Every other name is claimed by its first push (`environments.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...artifacts.data.builtin import built_in
from ..serving.accounts import LOCAL, Accounts
from ..stores.base import Store

_PREFIX = "aenv-"


class Reserved:
    """What is reserved on this server, and by whom such a name may be held."""

    def __init__(self, store: Store, folders: Iterable[str]) -> None:
        self._accounts = Accounts(store)
        self._folders = {_plain(name) for name in folders}
        self._built_in = {_plain(name) for name in built_in()}

    def why(self, name: str) -> str | None:
        """Why a name is reserved, in words; None for one that is free. Spellings that look alike are one name."""
        plain = _plain(name)
        if plain in self._built_in:
            return "it is the name of a built-in environment"
        if plain in self._folders:
            return "it is the name of a folder on the server"
        return f"it begins with '{_PREFIX}'" if plain.startswith(_PREFIX) else None

    def is_built_in(self, name: str) -> bool:
        return _plain(name) in self._built_in

    async def is_given_by(self, owner: str) -> bool:
        """Whether what `owner` has pushed was pushed by an administrator, or before there were accounts."""
        return owner == LOCAL.user or await self._accounts.has_admin(owner)


def _plain(name: str) -> str:
    return re.sub(r"[._-]+", "-", name.lower())
