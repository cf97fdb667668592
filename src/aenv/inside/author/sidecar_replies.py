"""What a sidecar answers about a command that has ended, for both ends.

What a command prints need not be text, so it comes as base64. Code that an agent runs may have got hold of the
sidecar: `read` takes nothing but what is declared here.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from ...base.errors import NetworkError


@dataclass(frozen=True)
class CommandReply:
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    """Whether it printed more than is kept."""

    @staticmethod
    def read(said: Any) -> CommandReply:
        """NetworkError when it is anything else."""
        match said:
            case {"exit_code": int(code), "stdout": str(out), "stderr": str(err), "truncated": bool(cut)}:
                return CommandReply(code, out, err, cut)
        raise nonsense()


@dataclass(frozen=True)
class PythonReply(CommandReply):
    answer: str
    """What its `main` gave back, as JSON; empty when it failed."""

    @staticmethod
    def read(said: Any) -> PythonReply:
        """NetworkError when it is anything else."""
        match said:
            case {"answer": str(answer)}:
                return PythonReply(**vars(CommandReply.read(said)), answer=answer)
        raise nonsense()


def packed(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


def unpacked(data: str) -> bytes:
    """NetworkError when it is not base64."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise nonsense() from None


def nonsense() -> NetworkError:
    return NetworkError("the answer of the sidecar cannot be read")
