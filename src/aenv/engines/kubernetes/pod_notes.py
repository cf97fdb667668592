"""What is noted on a Pod about its instance: the tools that it offers, small enough for an annotation."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

MAX_BYTES = 128 << 10  # all annotations of an object together may have 256 KiB
_MAX_UNPACKED = 8 << 20


def pack(tools: list[dict[str, Any]]) -> str | None:
    """The tools as text; None when they are too many to be noted, and must be asked for again."""
    text = base64.b64encode(zlib.compress(json.dumps(tools).encode(), 6)).decode()
    return text if len(text) <= MAX_BYTES else None


def unpack(text: str | None) -> list[dict[str, Any]] | None:
    """The tools that were noted; None when there are none, or when somebody has changed the note."""
    if not text:
        return None
    try:
        unpacker = zlib.decompressobj()
        found = json.loads(unpacker.decompress(base64.b64decode(text), _MAX_UNPACKED))
    except (ValueError, zlib.error):
        return None
    return found if isinstance(found, list) else None
