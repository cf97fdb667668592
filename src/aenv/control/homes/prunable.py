"""What `aenv prune` can remove: the kinds, and one thing of a kind. Without what looks for them: `pruning.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KINDS = ("rootfs", "requirements", "bundles", "code", "evals", "logs")


@dataclass(frozen=True)
class Prunable:
    """Something that can go."""

    kind: str
    name: str
    size_bytes: int
    last_used: float
    """Seconds since the epoch."""
    path: Path | None
    """Where it is; None for what is not on this machine."""


@dataclass(frozen=True)
class PruneScope:
    """What is pruned: a home folder, and where its records and bundles are, as `aenv serve` was told."""

    home: Path
    store: str = ""
    blobs: str = ""

    @property
    def has_records(self) -> bool:
        """Whether there is a store to ask: to look into a home must not make one there."""
        return self.store not in ("", "sqlite") or (self.home / "aenv.db").exists()
