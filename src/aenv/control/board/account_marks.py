"""Marks of accounts: which of them may act, as the owner has just learned from the store.

A worker that finds no mark passes the request on to the owner, which asks the store and marks the account.
"""

from __future__ import annotations

import zlib

from .shared_memory import ACCOUNT_BYTES, ACCOUNTS, Board


class AccountMarks:
    """Each account has one place, which another may take from it."""

    def __init__(self, board: Board) -> None:
        self._ids = board.account_ids
        self._until = board.accounts_until

    def set(self, id: str, until: float) -> None:
        """It may act until then, on the clock of `time.monotonic`."""
        name, place = _place(id)
        if len(name) == ACCOUNT_BYTES:
            self._until[place] = 0.0
            self._ids[place * ACCOUNT_BYTES : (place + 1) * ACCOUNT_BYTES] = name
            self._until[place] = until

    def clear(self) -> None:
        """An account has changed: none is trusted before the store was asked again."""
        self._until.cast("B")[:] = bytes(8 * ACCOUNTS)

    def has(self, id: str, now: float) -> bool:
        name, place = _place(id)
        # In this order: `until` is 0 while the name changes.
        until: float = self._until[place]
        return now < until and self._ids[place * ACCOUNT_BYTES : (place + 1) * ACCOUNT_BYTES] == name


def _place(id: str) -> tuple[bytes, int]:
    name = id.encode()
    return name, zlib.crc32(name) % ACCOUNTS
