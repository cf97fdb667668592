"""Similarity of tasks: duplicates by text and by structure, and tasks close to those that must stay unseen."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from .mutations import NAMES

NEAR = 0.6
"""Above this share of common word triples two texts are too near."""
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Kana and Han, which are written without spaces: each character counts as a word."""
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_NAMES = {name.casefold() for name in NAMES}


def normalised(text: str) -> str:
    """The words of a text alone, without case, accents' variants, signs, spaces, and what has no width."""
    seen = "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", seen.casefold())))


class KnownTasks:
    """The tasks that a new one must not repeat."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._structures: set[str] = set()

    def has_structure(self, structure: str) -> bool:
        return structure in self._structures

    def has_text(self, text: str) -> bool:
        return normalised(text) in self._texts

    def add(self, structure: str, text: str = "") -> None:
        self._structures.add(structure)
        if words := normalised(text):
            self._texts.add(words)


class GuardedTexts:
    """Texts of tasks that new ones must not come near: numbers and names do not make a difference."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._known = [_triples(text) for text in texts if normalised(text)]

    def __len__(self) -> int:
        return len(self._known)

    def is_near(self, text: str) -> bool:
        """Whether most of it, or most of a guarded task, is common to both."""
        mine = _triples(text)
        return any(
            len(mine & theirs) > NEAR * min(len(mine), len(theirs)) for theirs in self._known if mine and theirs
        )


def _triples(text: str) -> frozenset[tuple[str, ...]]:
    words = ["0" if word[0].isdigit() else "n" if word in _NAMES else word for word in normalised(text).split()]
    return frozenset(tuple(words[index : index + 3]) for index in range(max(1, len(words) - 2)))
