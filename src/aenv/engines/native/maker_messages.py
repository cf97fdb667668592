"""What the gateway's engine and its makers say to each other, and how it is framed.

Both ends are processes of ours that run our code alone, joined by a socket pair that no other process has: so
what is said is pickled.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...isolation.sandbox.rootfs import Rootfs
from ..base import InstanceSpec

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class MakeOrder:
    """Create an instance; an `OrderOutcome` follows."""

    number: int
    spec: InstanceSpec
    root: Rootfs
    rehearse: bool


@dataclass(frozen=True)
class GiveUpOrder:
    """Stop creating it, or end it; an `OrderOutcome` follows once nothing is left."""

    number: int
    making: int
    """The number of its `MakeOrder`."""
    id: str


@dataclass(frozen=True)
class DestroyOrder:
    """End an instance; an `OrderOutcome` follows."""

    number: int
    id: str


@dataclass(frozen=True)
class OrderOutcome:
    """What came of an order."""

    number: int
    error: Exception | None = None
    socket: str = ""
    """Where the instance listens, and below what else its address tells; empty when none was made."""
    pid: int = 0
    root: str = ""
    not_enforced: tuple[str, ...] = ()
    tools: list[dict[str, Any]] | None = None
    """None where they are those of the last instance: then they are not sent again."""


@dataclass(frozen=True)
class EndedNotice:
    """An instance has ended by itself."""

    id: str
    reason: str


@dataclass(frozen=True)
class MakerReady:
    """Instances can be ordered."""


class Frames:
    """Messages on a stream of bytes."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @staticmethod
    def packed(message: object) -> bytes:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        return _LENGTH.pack(len(data)) + data

    def unpacked(self, data: bytes) -> Iterator[Any]:
        """The messages that are whole with this."""
        self._rest += data
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            packet = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield pickle.loads(packet)
