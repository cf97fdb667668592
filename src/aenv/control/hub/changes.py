"""What is new in a version: its files and tools, compared with the version before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_NAMES = 100


def compare(
    files: Mapping[str, str],
    old_files: Mapping[str, str],
    tools: list[dict[str, Any]],
    old_tools: list[dict[str, Any]],
) -> dict[str, dict[str, list[str]]]:
    """{"files": {"added", "removed", "changed"}, "tools": …}, each with at most 100 names."""
    return {"files": _names(files, old_files), "tools": _names(_by_name(tools), _by_name(old_tools))}


def _names(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        "added": sorted(new.keys() - old.keys())[:_MAX_NAMES],
        "removed": sorted(old.keys() - new.keys())[:_MAX_NAMES],
        "changed": sorted(name for name in new.keys() & old.keys() if new[name] != old[name])[:_MAX_NAMES],
    }


def _by_name(offers: list[dict[str, Any]]) -> dict[str, Any]:
    return {str(offer.get("name")): offer for offer in offers}
