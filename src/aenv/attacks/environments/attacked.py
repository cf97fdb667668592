"""An environment that is attacked from inside: an agent that has taken over its runtime, as tools."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from aenv import register_tool

sys.path.append(str(Path(__file__).resolve().parent.parent / "programs"))
kept: list[Any] = []


@register_tool
def attack(family: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Attack from within the runtime's own process."""
    importlib.import_module(family)
    verdict: dict[str, Any] = importlib.import_module("attempt").run(name, given)
    return verdict


@register_tool
def evaluate(code: str) -> dict[str, Any]:
    """Run code, and give back what it has left in `said`."""
    names: dict[str, Any] = {"kept": kept}
    exec(code, names)
    return {"said": names.get("said")}
