"""What an engine tells the program that runs one command in a container: one line of JSON on its standard input.

For both ends: `engines/containers/container_commands.py` writes it, `inside/runtime/command_program.py` reads it.
The end in the container may be of another version, so a new field needs a default.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class CommandOrder:
    command: tuple[str, ...]
    timeout: float | None
    """In seconds; None means that there is no limit."""
    stdin_bytes: int
    """How much of what follows the line is the command's own input."""
    variables_file: str = ""
    """Where the container has the instance's variables, if not in its own."""

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> CommandOrder:
        said = json.loads(line)
        return cls(**{**said, "command": tuple(said["command"])})
