"""`aenv instances`: the same as `aenv instance list`."""

from __future__ import annotations

from .instance import list_ as command

__all__ = ["command"]
