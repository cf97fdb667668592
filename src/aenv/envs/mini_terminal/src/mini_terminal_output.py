"""What a terminal prints, kept within a bound: the beginning, the end, and a notice of what is missing between."""

from __future__ import annotations

import codecs

MAX_OUTPUT_BYTES = 10_000_000
_MOST_ESCAPED = 1_000_000
# Characters that JSON writes with six letters; a text full of them would not fit into a reply.
_ESCAPED = (*range(8), 11, *range(14, 32))


class CappedOutput:
    """Takes bytes as they come, and gives them back as text. Its memory is bounded, whatever comes."""

    def __init__(self, limit: int = MAX_OUTPUT_BYTES) -> None:
        self._half = limit // 2
        self.clear()

    def clear(self) -> None:
        """Forget what no caller has taken."""
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, piece: bytes) -> None:
        """Keep it, or as much of it as there is room for."""
        self._total += len(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half:  # not at every piece: cutting copies what stays
            del self._tail[: -self._half]

    def take(self, *, is_all: bool) -> str:
        """The text since it was last taken. Until it is all, a character that has begun waits for its end."""
        del self._tail[: -self._half]
        missing = self._total - len(self._head) - len(self._tail)
        notice = f"\n[output capped: {missing} of {self._total} bytes are left out here]\n" if missing else ""
        text = self._decoder.decode(bytes(self._head + notice.encode() + self._tail), is_all)
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        return _writable(text)


def _writable(text: str) -> str:
    if len(text) <= _MOST_ESCAPED:
        return text
    escaped = len(text) - len(text.translate(dict.fromkeys(_ESCAPED)))
    if escaped <= _MOST_ESCAPED:
        return text
    return text.translate(dict.fromkeys(_ESCAPED, "\N{REPLACEMENT CHARACTER}"))
