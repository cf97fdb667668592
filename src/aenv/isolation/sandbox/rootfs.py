"""A root file system: the folders of the host that make it up.

Not here: where they come from (`aenv.isolation.rootfs`), or how they are mounted (`mounts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Rootfs:
    """What an instance sees as `/`: layers over each other, the uppermost first; none of them is ever changed."""

    name: str
    """For people: "host", or an image's reference, or whose Dockerfile."""
    layers: tuple[Path, ...]
    """Of `/`."""
    system: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """Folders that are not in the layers of `/`, with layers of their own; as in {"/usr": (Path("/usr"),)}."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the image says with ENV; the environment's own come before these."""
    folder: str = ""
    """What the image says with WORKDIR."""
    notes: tuple[str, ...] = ()
    """What people should know about it, such as a base that stands in for another."""
    packages: Path | None = None
    """Python packages for what our own interpreter runs there; no program of the root sees them."""
