"""Bodies in chunks, as the data port reads them: in any pieces, strictly, and no byte beyond their end."""

from __future__ import annotations

import pytest

from aenv.control.gateway.forwarding.chunked_body import LAST, ChunkedBody, chunk
from aenv.control.gateway.forwarding.reply_heads import NotHttp

BODY = bytes(range(256)) * 20


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, 100_000])
def test_a_body_is_the_same_in_whatever_pieces_it_comes(step: int) -> None:
    encoded = b"".join(chunk(BODY[place : place + 7]) for place in range(0, len(BODY), 7))
    encoded += b"A;name=value\r\n0123456789\r\n0\r\nx-trailer: dropped\r\n\r\nNEXT"
    chunks, found, place = ChunkedBody(), b"", 0
    while not chunks.is_over:
        found += b"".join(chunks.feed(encoded[place : place + step]))
        place += step
    assert found == BODY + b"0123456789"
    assert chunks.rest + encoded[place:] == b"NEXT"


@pytest.mark.parametrize(
    "nonsense",
    [
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\nx\r\n",
        b"1_0\r\n",
        b"\r\n",
        b" 1\r\nx\r\n",
        b"0x1\r\nx\r\n",
        b"1\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n\n",
        b"f" * 16 + b"\r\n",
        b"1;" + b"x" * 5000,
        b"0\r\n" + b"x: y\r\n" * 20_000,
    ],
)
def test_what_is_no_chunk_is_refused(nonsense: bytes) -> None:
    with pytest.raises(NotHttp):
        ChunkedBody().feed(nonsense)


def test_no_data_is_no_chunk_since_that_would_be_the_end() -> None:
    assert chunk(b"") == b""
    chunks = ChunkedBody()
    assert chunks.feed(chunk(b"hello") + LAST) == [b"hello"]
    assert chunks.is_over
