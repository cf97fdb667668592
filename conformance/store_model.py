"""A store as a dictionary: what the real ones must agree with, whatever is done to them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from aenv.control.stores.base import Delete, Document, LimitReached, Put, Stale

KIND = "thing"
KEYS = [f"key{n}" for n in range(6)]
TERMS = ["x", "y", "z"]
NAMES = ["c", "d"]


class Model:
    """The documents that there are, each as the Put that wrote it, with its revision."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[Put, int]] = {}

    def some_changes(self, chance: random.Random) -> list[Put | Delete]:
        return [self._change(key, chance) for key in chance.sample(KEYS, chance.randint(1, 3))]

    def outcome(self, changes: Sequence[Put | Delete]) -> Exception | None:
        """Make the changes, or say why not."""
        for change in changes:
            if change.revision is not None and change.revision != self.revision(change.key):
                return Stale(change.kind, change.key)
        after = Model()
        after.documents = dict(self.documents)
        for change in changes:
            before = after.documents.pop(change.key, None)
            if isinstance(change, Put):
                after.documents[change.key] = (change, (before[1] if before else 0) + 1)
        for change in changes:
            for name, limit in change.limits.items() if isinstance(change, Put) else ():
                if after.total(name) > limit:
                    return LimitReached(name, self.total(name), limit)
        self.documents = after.documents
        return None

    async def compare(self, store: Any, chance: random.Random) -> None:
        """All that can be asked, with a part of a list chosen by chance."""
        assert await store.get(KIND, *KEYS) == [self.document(key) for key in KEYS]
        assert await store.totals(*NAMES) == [self.total(name) for name in NAMES]
        terms = chance.sample(TERMS, chance.randint(1, 3))
        reverse, limit, offset = chance.random() < 0.5, chance.randint(1, 7), chance.choice([0, 0, 1, 3])
        page = await store.page(KIND, *terms, limit=limit, offset=offset, reverse=reverse)
        listed = self.listed(terms, reverse)
        assert page.documents == [self.document(key) for key in listed[offset : offset + limit]]
        assert page.total == len(listed)
        assert (page.next is not None) == (offset + limit < len(listed))
        if page.next is not None:
            rest = await store.page(KIND, *terms, limit=99, after=page.next, reverse=reverse)
            assert rest.documents == [self.document(key) for key in listed[offset + limit :]]

    def revision(self, key: str) -> int:
        return self.documents[key][1] if key in self.documents else 0

    def document(self, key: str) -> Document | None:
        if key not in self.documents:
            return None
        put, revision = self.documents[key]
        return Document(key, dict(put.value), revision)

    def total(self, name: str) -> int:
        return sum(put.counts.get(name, 0) for put, _ in self.documents.values())

    def listed(self, terms: Sequence[str], reverse: bool) -> list[str]:
        places = []
        for put, _ in self.documents.values():
            first = next((term for term in terms if term in put.terms), None)
            if first is not None:
                places.append((put.terms[first], put.key))
        return [key for _, key in sorted(places, reverse=reverse)]

    def _change(self, key: str, chance: random.Random) -> Put | Delete:
        right = self.revision(key)
        revision = chance.choice([None, None, None, right, right, right + 1])
        if chance.random() < 0.25:
            return Delete(KIND, key, revision=revision)
        return Put(
            KIND,
            key,
            {"n": chance.random()},
            revision=revision,
            terms={term: chance.choice("abc") for term in chance.sample(TERMS, chance.randint(0, 3))},
            counts={name: chance.randint(0, 4) for name in chance.sample(NAMES, chance.randint(0, 2))},
            limits={name: chance.randint(4, 12) for name in chance.sample(NAMES, chance.randint(0, 1))},
        )
