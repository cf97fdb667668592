"""Draws from a seed: the same everywhere, whatever the version of Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Numbers drawn from a text. Made of SHA-256 alone, so that no version of Python draws others."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._count = 0

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1, each as likely as the others."""
        while True:
            self._count += 1
            digest = hashlib.sha256(f"{self._text}:{self._count}".encode()).digest()
            drawn = int.from_bytes(digest[:8], "big")
            if drawn < (1 << 64) // bound * bound:
                return drawn % bound

    def between(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.below(len(options))]

    def two(self, options: Sequence[T]) -> tuple[T, T]:
        """Two different ones."""
        first = self.below(len(options))
        second = (first + self.between(1, len(options) - 1)) % len(options)
        return options[first], options[second]
