"""Limits that both ends of a connection agree on."""

from __future__ import annotations

MAX_BODY_BYTES = 64 << 20


def spell_bytes(size: int) -> str:
    """A size as people read it: "64 MiB", "512 KiB", "100 bytes"."""
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= length and size % length == 0:
            return f"{size // length} {unit}"
    return f"{size} bytes"
