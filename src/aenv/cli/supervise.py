"""A runtime as a child process: start it, tell when it serves, restart it when its source changes, end it.

The listening socket is ours and is handed down, so that no client is refused while the runtime restarts. The
child has a session of its own: Ctrl-C reaches us alone, and we end the child in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.child_processes import end, read_line
from ..base.supervision import first_of
from ..isolation.sandbox import protocol
from . import output
from .watch import Watcher

Announce = Callable[[protocol.Ready], None]


@dataclass(frozen=True)
class Plan:
    """How to start the runtime."""

    path: Path
    options: Sequence[str]
    arguments: Sequence[str]
    folder: Path
    variables: Mapping[str, str]
    python: str = sys.executable

    def command(self, *options: str) -> list[str]:
        """The command line; `options` are those that only the caller knows, such as descriptors."""
        after_dashes = ["--", *self.arguments] if self.arguments else []
        return [self.python, "-m", "aenv.main", str(self.path), *self.options, *options, *after_dashes]


async def supervise(
    plan: Plan, listener: socket.socket, announce: Announce, watcher: Watcher | None = None
) -> int:
    """Serve until a signal asks us to stop, or the runtime ends by itself; returns the exit code.

    With a watcher the runtime is started again after every change, also when it had failed to load.
    """
    with stop_signals() as stop:
        while True:
            changes = {"change": watcher.changed()} if watcher else {}
            first, code = await _first(stop=stop.wait(), **changes, runtime=_run_once(plan, listener, announce))
            if first == "runtime" and watcher:
                output.talk("aenv: waiting for a change of the source")
                first, _ = await _first(stop=stop.wait(), change=watcher.changed())
            if first == "stop":
                return 0
            if first == "runtime":
                return 1 if code else 0
            output.talk("aenv: the source has changed; restarting")


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT, SIGTERM and a closing terminal set, in place of ending this process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _run_once(plan: Plan, listener: socket.socket, announce: Announce) -> int:
    """The life of one runtime; its exit code. Cancelling ends it."""
    async with running(plan, listener) as (process, said):
        if isinstance(said, protocol.Ready):
            announce(said)
        code = await process.wait()
        if code and not isinstance(said, protocol.NotReady):  # otherwise it has said why itself
            how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
            output.error(f"the runtime of {str(plan.path)!r} ended with {how}")
        return code


@contextlib.asynccontextmanager
async def running(
    plan: Plan, listener: socket.socket, log: int | None = None
) -> AsyncIterator[tuple[Process, protocol.Ready | protocol.NotReady | None]]:
    """A runtime for the time of the block, and what it said once it had started, or failed to; None for nothing.

    `log` is where it prints; otherwise where we do.
    """
    reading, writing = os.pipe()
    lifeline, held = os.pipe()  # we hold one end for as long as we live, so that a killed `aenv run` ends it too
    try:
        process = await asyncio.create_subprocess_exec(
            *plan.command(
                *("--fd", str(listener.fileno())), *("--ready-fd", str(writing)), *("--lifeline-fd", str(lifeline))
            ),
            cwd=plan.folder,
            env=plan.variables,
            stdout=log,
            stderr=log,
            pass_fds=(listener.fileno(), writing, lifeline),
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        os.close(held)
        raise
    finally:
        os.close(writing)  # ours, so that the child's exit reads as end-of-file
        os.close(lifeline)
    try:
        line = await read_line(reading)
        yield process, _said(line) if line else None
    finally:
        await end(process)
        os.close(held)


def _said(line: bytes) -> protocol.Ready | protocol.NotReady:
    try:
        return protocol.ready(line)
    except protocol.Broken as error:
        raise output.Failure(f"the runtime cannot be used: {error}") from None


async def _first(**waits: Coroutine[Any, Any, Any]) -> tuple[str, Any]:
    """The name and result of what finishes first, the earlier named winning a tie; the rest is cancelled."""
    tasks: dict[asyncio.Future[Any], str] = {asyncio.ensure_future(wait): name for name, wait in waits.items()}
    winner = await first_of(*tasks)
    return tasks[winner], winner.result()
