"""An environment whose author is the attacker: its code attacks before there is an instance."""

from __future__ import annotations

from typing import Any

from pushed_helper import SAID, register_it


@register_it
def said() -> dict[str, Any]:
    """What was said before there was an instance."""
    return SAID


@register_it
def attack(family: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Attack from a process of its own."""
    import importlib

    importlib.import_module(family)
    verdict: dict[str, Any] = importlib.import_module("attempt")._apart(name, given)
    return verdict
