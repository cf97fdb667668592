"""Bundles: an environment's source in one file, named by the sha256 of its bytes."""

from __future__ import annotations

from .packing import Bundle, pack
from .reading import MAX_BYTES, MAX_FILES, Contents, inspect, unpack

__all__ = ["MAX_BYTES", "MAX_FILES", "Bundle", "Contents", "inspect", "pack", "unpack"]
