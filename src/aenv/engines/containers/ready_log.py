"""The ready line in what a container prints.

The runtime of a container has no pipe to the engine: it writes one marked line to its standard output. What an
instance prints may be hostile: a line that is not a ready line, or never ends, is a `Broken` of the boot protocol.
"""

from __future__ import annotations

from ...base.container_start import READY_MARK
from ...isolation.sandbox.protocol import MAX_READY_BYTES, NotReady, Ready, ready

_MARK = READY_MARK[:1]


class ReadyLog:
    """Takes the output of a container piece by piece, and keeps the ready line out of it.

    log = ReadyLog()
    text = log.feed(piece)       # what people may read
    if log.line is not None:     # the runtime has said whether it is ready
        said = log.said()
    """

    def __init__(self) -> None:
        self.line: bytes | None = None
        """The first ready line, without its mark and line break; of one that is too long, its beginning."""
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What of the output is not the ready line. Bytes that may be its beginning are held back."""
        data, shown = self._held + piece, b""
        self._held = b""
        while data:
            start = data.find(_MARK)
            if start < 0:
                return shown + data
            shown, data = shown + data[:start], data[start:]
            if not READY_MARK.startswith(data[: len(READY_MARK)]):
                shown, data = shown + _MARK, data[1:]
                continue
            end = data.find(b"\n")
            if end < 0 and len(data) <= MAX_READY_BYTES + len(READY_MARK):
                self._held = data
                return shown
            if self.line is None:
                self.line = data[len(READY_MARK) : end if end >= 0 else None]
            data = data[end + 1 :] if end >= 0 else b""
        return shown

    def rest(self) -> bytes:
        """What was held back, once the output has ended."""
        held, self._held = self._held, b""
        return held

    def said(self) -> Ready | NotReady:
        """What the ready line says. Broken when it is not one."""
        assert self.line is not None
        return ready(self.line)
