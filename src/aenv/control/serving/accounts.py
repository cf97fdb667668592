"""Accounts: who a bearer token belongs to, and what that person may do.

A token is shown once and kept as a hash. Not here: the tokens of instances (`gateway/tokens.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from ...base.errors import InvalidRequest, NotFound, Unauthenticated, Unavailable
from ..board.account_marks import AccountMarks
from ..stores.base import Document, Put, Stale, Store, walk

_KIND = "accounts"
_TOKEN = re.compile(r"aenv-([a-z2-7]{16})-[a-z2-7]{32}\Z")
FORM = "aenv-ID-SECRET, with 16 and 32 characters of a-z and 2-7"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_USER = re.compile(r"[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,126}[^\s\x00-\x1f\x7f])?\Z")
_CACHED = 30.0  # seconds for which a revoked token may still work on a gateway that has just seen it
_MAX_CACHED = 4096
_UNKNOWN = "this token does not exist; make one with 'aenv token create'"
_NONE_KNOWN = 1.0  # seconds for which a server believes that there are no accounts


class Role(StrEnum):
    """What a caller may do, each more than the one before. No account has the role ANONYMOUS."""

    ANONYMOUS = "anonymous"
    VIEWER = "viewer"
    USER = "user"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        return _ORDER[self] >= _ORDER[other]


_ORDER = {role: place for place, role in enumerate(Role)}


@dataclass(frozen=True)
class Caller:
    user: str
    role: Role
    account: str | None = None
    """The id of the account; None where there are no accounts."""
    max_instances: int | None = None

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def owns(self, owner: str | None) -> bool:
        """Whether a thing of `owner` is the caller's to see and touch."""
        return self.is_admin or (owner == self.user and self.role is not Role.ANONYMOUS)


ANONYMOUS = Caller("", Role.ANONYMOUS)
"""A caller without a token, where there are accounts: it may see what is public."""

LOCAL = Caller("local", Role.ADMIN)
"""Every caller, as long as there are no accounts; and every process that may open the platform's unix socket."""


@dataclass(frozen=True)
class Account:
    """An account as it is listed; the token itself is known to its holder alone."""

    id: str
    user: str
    role: Role
    max_instances: int | None
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None

    @property
    def is_valid(self) -> bool:
        return self.revoked_at is None and (self.expires_at is None or time.time() < self.expires_at)

    def caller(self) -> Caller:
        return Caller(self.user, self.role, self.id, self.max_instances)


class Accounts:
    """The accounts in a store. Works with no server running."""

    def __init__(self, store: Store, *, needed: bool = False, marks: AccountMarks | None = None) -> None:
        """`needed`: a caller without an account is refused, even while there is none.

        `marks`: what data workers know of accounts.
        """
        self._store = store
        self._needed = needed
        self._marks = marks
        self._seen: dict[str, tuple[float, Account]] = {}
        self._exist = False
        self._look_again = 0.0

    async def create(
        self,
        user: str,
        role: Role = Role.USER,
        max_instances: int | None = None,
        expires: float | None = None,
    ) -> tuple[Account, str]:
        """A new account and its token, which is shown once. `expires` is in seconds from now."""
        if max_instances is not None and max_instances < 0:
            raise InvalidRequest(f"field 'max_instances': {max_instances} is negative")
        account = _new(_random(16), user, role)
        over = account.created_at + expires if expires else None
        account = replace(account, max_instances=max_instances, expires_at=over)
        token = f"aenv-{account.id}-{_random(32)}"
        await self._store.write(self._put(account, _hash(token), 0))
        self._exist = True
        return account, token

    async def ensure(self, user: str, role: Role, token: str) -> Account:
        """The account that this token opens: the one that has it, else a new one, made once by all who ask."""
        match = _TOKEN.match(token)
        if match is None:
            raise InvalidRequest(f"field 'token': it must have the form {FORM}")
        account = _new(match[1], user, role)
        with suppress(Stale):
            await self._store.write(self._put(account, _hash(token), 0))
            self._exist = True
            return account
        [document] = await self._store.get(_KIND, account.id)
        if document is None or not hmac.compare_digest(document.value["hash"], _hash(token)):
            raise InvalidRequest(f"field 'token': another token has the id {account.id}; choose a random one")
        known = _account(document)
        if (known.user, known.role) != (user, role):
            raise InvalidRequest(f"field 'token': it is the token of {known.user!r} ({known.role})")
        return known

    async def exist(self) -> bool:
        """Whether there is any account, if only a revoked one: then a token is needed to administer."""
        if not self._exist and self._look_again <= time.monotonic():
            self._exist = bool((await self._store.page(_KIND, "all", limit=1)).total)
            self._look_again = time.monotonic() + _NONE_KNOWN
        return self._exist

    async def are_needed(self) -> bool:
        """Whether who has none is anonymous, and not the owner of it all."""
        return self._needed or await self.exist()

    async def list(self) -> list[Account]:
        """All accounts, oldest first, with those that are over."""
        return [_account(document) async for document in walk(self._store, _KIND, "all")]

    async def has_admin(self, user: str) -> bool:
        """Whether an account of this user is, or was, an administrator's."""
        found = [_account(document) async for document in walk(self._store, _KIND, f"user={user}")]
        return any(account.role is Role.ADMIN for account in found)

    async def get(self, id: str) -> Account:
        return _account(await self._document(id))

    async def change(self, id: str, **changes: Any) -> Account:
        """Set fields of an account, as in `change(id, max_instances=5)`."""
        while True:
            document = await self._document(id)
            account = replace(_account(document), **changes)
            with suppress(Stale):
                await self._store.write(self._put(account, document.value["hash"], document.revision))
                self._seen.clear()
                if self._marks:
                    self._marks.clear()
                return account

    async def revoke(self, id: str) -> Account:
        """Let its token open nothing any more; on other gateways within half a minute."""
        account = await self.get(id)
        return account if account.revoked_at else await self.change(id, revoked_at=time.time())

    async def authenticate(self, token: str) -> Account:
        """Whose token it is. Unauthenticated when it is unknown or has expired."""
        match = _TOKEN.match(token)
        if match is None:
            raise Unauthenticated(_UNKNOWN)
        digest = _hash(token)
        seen = self._seen.get(digest)
        if seen is None or seen[0] < time.monotonic():
            [document] = await self._store.get(_KIND, match[1])
            if document is None or not hmac.compare_digest(document.value["hash"], digest):
                raise Unauthenticated(_UNKNOWN)
            seen = (time.monotonic() + _CACHED, _account(document))
            if len(self._seen) >= _MAX_CACHED:
                self._seen.clear()
            self._seen[digest] = seen
        account = seen[1]
        if not account.is_valid:
            what = "this token was revoked" if account.revoked_at else "this token has expired"
            raise Unauthenticated(f"{what}; ask an administrator for another")
        return account

    async def may_act(self, id: str) -> bool:
        """Whether an account is still good, as of at most half a minute ago, and may do more than look."""
        seen = self._seen.get(id)
        if seen is None or seen[0] < time.monotonic():
            try:
                [document] = await self._store.get(_KIND, id)
            except Unavailable:
                if seen is None:
                    raise
                account = seen[1]  # it cannot be revoked either while the store does not answer
            else:
                if document is None:
                    return False
                account = _account(document)
            self._seen[id] = seen = (time.monotonic() + _CACHED, account)
        until, account = seen
        may = account.is_valid and account.role.includes(Role.USER)
        if may and self._marks:
            lives = account.expires_at - time.time() if account.expires_at else _CACHED
            self._marks.set(id, min(until, time.monotonic() + lives))
        return may

    async def _document(self, id: str) -> Document:
        [document] = await self._store.get(_KIND, id)
        if document is None:
            raise NotFound(f"token {id!r} not found; 'aenv token list' shows all")
        return document

    def _put(self, account: Account, digest: str, revision: int) -> Put:
        place = f"{account.created_at:017.6f}"
        return Put(
            _KIND,
            account.id,
            {**asdict(account), "hash": digest},
            revision=revision,
            terms={"all": place, f"user={account.user}": place},
        )


def _new(id: str, user: str, role: Role) -> Account:
    if not _USER.match(user):
        raise InvalidRequest(f"field 'user': {user!r} is not a name; use 1 to 128 printable characters")
    if role is Role.ANONYMOUS:
        raise InvalidRequest("field 'role': use 'admin', 'user' or 'viewer'")
    return Account(id, user, role, None, time.time())


def is_token(text: str) -> bool:
    """Whether `text` looks like an account's token: then no instance must ever see it."""
    return _TOKEN.match(text) is not None


def _account(document: Document) -> Account:
    fields = {name: value for name, value in document.value.items() if name != "hash"}
    return Account(**{**fields, "role": Role(fields["role"])})


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash(token: str) -> str:
    # Not a slow hash: the token has 160 random bits, which cannot be guessed.
    return hashlib.sha256(token.encode()).hexdigest()
