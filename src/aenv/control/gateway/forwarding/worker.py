"""A data worker: a process that serves the data port beside others. `python -m …worker SETTINGS`, by its gateway.

It ends when the owner process does, and when that tells it to stop. Signals are the owner's business. What it
says on standard error, the owner logs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from dataclasses import asdict, dataclass

from ....base import limits
from ...board.shared_memory import Board
from ...serving import loops
from ..data_request import DataRules
from ..tokens import Tokens
from .acceptor import Acceptor
from .forwarder import Forwarder, OwnerAccess

READY, STOP = b"r", b"s"
_NEW_OBJECTS = 20_000  # a collection of so many takes about a millisecond


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is told at its start; descriptors by their numbers."""

    column: int
    columns: int
    board: int
    listener: int
    owner: str
    """The path of the owner's listener."""
    max_body_bytes: int
    loopback_only: bool
    allowed: list[str]

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> WorkerSettings:
        return cls(**json.loads(text))

    @property
    def rules(self) -> DataRules:
        return DataRules(self.max_body_bytes, self.loopback_only, frozenset(self.allowed))


def main() -> None:
    settings = WorkerSettings.from_text(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM):  # they come to the whole group; the owner knows what to do
        signal.signal(number, signal.SIG_IGN)
    limits.allow_many_open_files()
    with asyncio.Runner(loop_factory=loops.factory()) as runner:
        runner.run(_serve(settings))


async def _serve(settings: WorkerSettings) -> None:
    board = Board(settings.columns, settings.board)
    owner = OwnerAccess(settings.owner, board.secret)
    with socket.socket(fileno=settings.listener) as listener, socket.socket(fileno=0) as channel:
        channel.setblocking(False)
        async with Forwarder(board, settings.column, Tokens(), settings.rules, owner) as forwarder:
            with Acceptor(forwarder, listener):
                gc.freeze()
                gc.set_threshold(_NEW_OBJECTS, 20, 50)
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(channel, READY)
                if await loop.sock_recv(channel, 1) != STOP:
                    os._exit(1)  # the owner is dead: its ports must be free for the next


if __name__ == "__main__":
    main()
