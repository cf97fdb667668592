"""What an engine tells a runtime that starts as the command of a container: one variable, `AENV_START`.

A variable and not the command line, so that the command which an image has is kept as it is. For both ends: an
engine writes it, and the runtime reads it before the environment is loaded, and removes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import InvalidRequest

VARIABLE = "AENV_START"
READY_MARK = b"\x1eaenv-ready "
"""What the ready line in a container's log begins with. The first byte is not text, so that it is found after
something that was printed without a line break."""
_MAX_BYTES = 120 << 10  # Linux takes no longer variable than 128 KiB


@dataclass(frozen=True)
class ContainerStart:
    """How the runtime begins in a container."""

    socket: str = ""
    """The unix socket to serve on; empty for the address that the command line says."""
    ready_line: bool = True
    """Whether the ready line is written to standard output, after READY_MARK."""
    arguments: tuple[str, ...] = ()
    """`sys.argv[1:]` of the environment."""
    keep_history: bool = True
    drain: float = 0.0
    """Seconds in which requests that are under way may end, after a signal."""
    ways_out: Mapping[str, str] = field(default_factory=dict)
    """Ports of the container's loopback, each with the unix socket that connections to it are passed on to."""

    def text(self) -> str:
        """The value of the variable. InvalidRequest when it is longer than a variable may be."""
        text = json.dumps(asdict(self), separators=(",", ":"))
        if len(text) > _MAX_BYTES:
            raise InvalidRequest(f"field 'arguments': takes more than {_MAX_BYTES >> 10} KiB in a container")
        return text

    @classmethod
    def parse(cls, text: str) -> ContainerStart:
        """From the value of the variable. InvalidRequest when it is not one."""
        try:
            said: dict[str, Any] = json.loads(text)
            return cls(**{**said, "arguments": tuple(said.get("arguments", ()))})
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidRequest(f"the variable {VARIABLE} cannot be read: {error}") from None
