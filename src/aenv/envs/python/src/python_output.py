"""What the interpreter prints, kept within a bound: the beginning, the end, and a notice of what is missing."""

from __future__ import annotations

MAX_OUTPUT_BYTES = 1_000_000


class CappedOutput:
    """Takes bytes as they come, and gives them back as text. Its memory is bounded, whatever comes."""

    def __init__(self, limit: int = MAX_OUTPUT_BYTES) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, piece: bytes) -> None:
        """Keep it, or as much of it as there is room for."""
        self._total += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half:  # not at every piece: cutting copies what stays
            del self._tail[: -self._half]

    def take(self) -> str:
        """The text since it was last taken."""
        del self._tail[: -self._half]
        missing = self._total - len(self._head) - len(self._tail)
        notice = f"\n[output capped: {missing} of {self._total} bytes are left out here]\n" if missing else ""
        text = bytes(self._head + notice.encode() + self._tail).decode(errors="replace")
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        return text
