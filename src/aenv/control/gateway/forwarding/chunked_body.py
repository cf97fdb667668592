"""A body in chunks, read strictly, and written again in chunks of our own: what else stands there is dropped."""

from __future__ import annotations

import re

from .reply_heads import NotHttp

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;[^\r\n]*)?\Z")
_WHOLE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_MAX_LINE_BYTES = 4 << 10
_MAX_TRAILER_BYTES = 64 << 10

LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk; nothing for no data, which would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class ChunkedBody:
    """Feed it what comes; it gives the parts of the body, and keeps what follows it in `rest`."""

    def __init__(self) -> None:
        self.is_over = False
        self.rest = b""
        """What was not read yet; behind the end, what does not belong to the body."""
        self._left = -1
        """Bytes of the chunk that have not come; 0 when its line break is due, -1 when the next size is."""
        self._in_trailer = False
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """NotHttp when these are not chunks."""
        data = self.rest + data if self.rest else data
        parts: list[bytes] = []
        place = self._whole_chunks(data, parts)
        while not self.is_over:
            if self._left > 0:
                part = data[place : place + self._left]
                if not part:
                    break
                parts.append(part)
                place += len(part)
                self._left -= len(part)
                continue
            end = data.find(b"\r\n", place)
            if end < 0:
                self._check_line(len(data) - place)
                break
            self._read_line(data[place:end])
            place = end + 2
        self.rest = data[place:]
        return parts

    def _whole_chunks(self, data: bytes, parts: list[bytes]) -> int:
        """Read chunks that came whole, of which a hostile peer sends thousands at once; where they end."""
        place = 0
        while self._left < 0 and (match := _WHOLE.match(data, place)):
            begin = match.end()
            end = begin + int(match[1], 16)
            if end == begin or data[end : end + 2] != b"\r\n":
                break
            parts.append(data[begin:end])
            place = end + 2
        return place

    def _read_line(self, line: bytes) -> None:
        if self._in_trailer:
            self._trailer_bytes += len(line)
            self._check_line(self._trailer_bytes)
            self.is_over = not line
        elif self._left == 0:
            if line:
                raise NotHttp("a chunk is longer than its size")
            self._left = -1
        else:
            self._check_line(len(line))
            match = _SIZE.match(line)
            if match is None:
                raise NotHttp("a chunk has no size")
            self._left = int(match[1], 16)
            if self._left == 0:
                self._in_trailer = True

    def _check_line(self, size: int) -> None:
        most = _MAX_TRAILER_BYTES if self._in_trailer else _MAX_LINE_BYTES
        if size > most or (self._left == 0 and not self._in_trailer and size > 1):
            raise NotHttp("chunks with a line that does not end")
