"""What an engine says to a runtime that waits in a Pod, over a connection to its port: for both ends.

    engine → Pod    one line, a `PodClaim`, then the bytes of a tar with its files, where it announces any
    Pod → engine    the ready line, as every runtime says it; then the connection ends

A first claim with `is_spare` loads the environment and no more; a second one then makes an instance of it.
Variables travel this way, and not in the Pod's manifest, which more people may read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import InvalidRequest

MODULE = "aenv.inside.zygote.claimed_pod"
"""The program that waits: `python3 -m MODULE --token TOKEN`."""
MAX_LINE_BYTES = 8 << 20


@dataclass(frozen=True)
class PodClaim:
    """What a waiting runtime becomes."""

    token: str = field(repr=False)
    """Proves that the engine says it which has made the Pod."""
    files_bytes: int = 0
    """The length of the tar that follows. Its paths are below `/`."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    arguments: tuple[str, ...] = ()
    project: str = ""
    requirements: str = ""
    workspace: str = ""
    variables_file: str = ""
    """Where the variables are noted, for commands that are started beside it; empty: nowhere."""
    keep_history: bool = True
    drain: float = 0.0
    """Seconds in which requests that are under way may end, when the Pod is deleted."""
    is_spare: bool = False

    def line(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> PodClaim:
        """InvalidRequest when it is not one."""
        try:
            said: dict[str, Any] = json.loads(line)
            return cls(**{**said, "arguments": tuple(said.get("arguments", ()))})
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidRequest(f"not a claim: {error}") from None
