"""Secrets by name: each belongs to a user, and its value is given to instances of that user alone.

They lie in the store as they are: what can read the store can read them. Not here: which variables get one
(`instances/secret_variables.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from ...base.config import is_secret_name
from ...base.errors import Conflict, InvalidRequest, NotFound
from ...base.masks import Masks
from ..stores.base import Delete, LimitReached, Put, Store
from .accounts import Caller

MAX_SECRETS = 1000
MAX_BYTES = 16 << 10
_KIND = "secrets"
_MOST_SEEN = 10_000
_LOCAL = ""  # no account is called so


@dataclass(frozen=True)
class Secret:
    """What is told of one."""

    name: str
    created_at: float
    updated_at: float


class Secrets:
    """The secrets of all users in a store. An `owner` is what `owner_of` says."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, set[str]] = {}
        """The values that this process has had in its hands: instances may have one from before a change."""

    async def put(self, owner: str, name: str, value: str) -> Secret:
        """Make one, or give it another value: instances that run keep the one that they have."""
        if not is_secret_name(name):
            raise InvalidRequest(
                f"field 'name': {name[:100]!r} is not a name of a secret; use at most 128 letters, digits, '_', "
                "'-' and '.', beginning with a letter or '_'"
            )
        if not value or "\0" in value:
            raise InvalidRequest("field 'value': must be a text that is not empty and has no NUL character")
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise InvalidRequest("field 'value': has no form in UTF-8") from None
        if size > MAX_BYTES:
            raise InvalidRequest(f"field 'value': is longer than {MAX_BYTES >> 10} KiB")
        key, now = _key(owner, name), time.time()
        [before] = await self._store.get(_KIND, key)
        if before:
            self._note(key, before.value["value"])
        created = before.value["created_at"] if before else now
        document = {"name": name, "value": value, "created_at": created, "updated_at": now}
        count = f"secrets={owner}"
        terms, counts = {f"owner={owner}": name}, {count: 1}
        try:
            await self._store.write(Put(_KIND, key, document, None, terms, counts, {count: MAX_SECRETS}))
        except LimitReached:
            message = f"you have {MAX_SECRETS} secrets, which is the limit; remove one with 'aenv secret rm NAME'"
            raise Conflict(message) from None
        return Secret(name, created, now)

    async def remove(self, owner: str, name: str) -> None:
        """NotFound when there is none. Instances that run keep the value."""
        key = _key(owner, name)
        [before] = await self._store.get(_KIND, key)
        if before is None:
            raise NotFound(f"secret {name[:100]!r} not found; 'aenv secret list' shows yours")
        self._note(key, before.value["value"])
        await self._store.write(Delete(_KIND, key))

    async def list(self, owner: str) -> list[Secret]:
        """All of an owner, by name."""
        page = await self._store.page(_KIND, f"owner={owner}", limit=MAX_SECRETS)
        told = ("name", "created_at", "updated_at")
        return [Secret(*(document.value[name] for name in told)) for document in page.documents]

    async def values(self, owner: str, names: Iterable[str]) -> dict[str, str]:
        """The values of those that exist, by name."""
        wanted = sorted({*names})
        if not wanted:
            return {}
        keys = [_key(owner, name) for name in wanted]
        found = await self._store.get(_KIND, *keys)
        values = {}
        for name, key, document in zip(wanted, keys, found, strict=True):
            if document:
                values[name] = document.value["value"]
                self._note(key, values[name])
        return values

    async def masks(self, owner: str, names: Iterable[str]) -> Masks:
        """What hides them: as they are now, and as this process has known them."""
        wanted = sorted({*names})
        await self.values(owner, wanted)
        return Masks(value for name in wanted for value in self._seen.get(_key(owner, name), ()))

    def _note(self, key: str, value: str) -> None:
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        self._seen.setdefault(key, set()).add(value)


def owner_of(caller: Caller) -> str:
    """Whose secrets a caller's are."""
    return owner_key(caller.user, caller.account)


def owner_key(user: str | None, account: str | None) -> str:
    """Whose secrets an instance of `user` gets, which was made with `account`: without one, the local user's."""
    return user or _LOCAL if account else _LOCAL


def _key(owner: str, name: str) -> str:
    return f"{owner}/{name}"  # no name holds a "/"
