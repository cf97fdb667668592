"""What is noted on a Pod about its instance: the tools that it offers, and the limits that do not hold."""

from __future__ import annotations

import base64
import json
import zlib
from contextlib import suppress
from dataclasses import fields
from typing import Any

from ..base import InstanceSpec
from .pod_manifest import NOT_ENFORCED

MAX_BYTES = 128 << 10  # all annotations of an object together may have 256 KiB
_MAX_UNPACKED = 8 << 20


_NOT_ENFORCED = {
    "pids": "the cluster's kubelets limit processes (podPidsLimit), and not an instance",
    "open_files": "Kubernetes does not limit open files",
}


def not_enforced(spec: InstanceSpec, no_policies: str = "") -> tuple[str, ...]:
    """Which of the limits that were asked for the cluster does not enforce, each with the reason.

    `no_policies`: why there are no network policies, if there are none.
    """
    asked = [each.name for each in fields(spec.limits) if getattr(spec.limits, each.name) is not None]
    found = tuple(f"{name}: {_NOT_ENFORCED[name]}" for name in asked if name in _NOT_ENFORCED)
    return (*found, f"network: {no_policies}") if no_policies and spec.network.kind == "none" else found


def noted_limits(pod: dict[str, Any]) -> tuple[str, ...]:
    """The same, as it was noted on the Pod."""
    with suppress(ValueError):
        found = json.loads(pod["metadata"].get("annotations", {}).get(NOT_ENFORCED) or "[]")
        return tuple(str(line) for line in found) if isinstance(found, list) else ()
    return ()


def pack(tools: list[dict[str, Any]]) -> str | None:
    """The tools as text; None when they are too many to be noted, and must be asked for again."""
    text = base64.b64encode(zlib.compress(json.dumps(tools).encode(), 6)).decode()
    return text if len(text) <= MAX_BYTES else None


def unpack(text: str | None) -> list[dict[str, Any]] | None:
    """The tools that were noted; None when there are none, or when the note was changed by another client."""
    if not text:
        return None
    try:
        unpacker = zlib.decompressobj()
        found = json.loads(unpacker.decompress(base64.b64decode(text), _MAX_UNPACKED))
    except (ValueError, zlib.error):
        return None
    return found if isinstance(found, list) else None
