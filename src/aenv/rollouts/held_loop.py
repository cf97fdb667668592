"""An agent that computes for ever and never awaits holds the event loop, and all other rollouts with it.

No timeout of asyncio fires then. A thread sees that the loop stands still, and raises in the code that holds it.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LOOK_EVERY = 0.5  # seconds


class LoopHeld(BaseException):
    """The event loop stood still for longer than one stage of a rollout may take.

    Not an `Exception`: the code that it is raised in may go on after every one of those.
    """


@contextmanager
def noticed(limit: float) -> Iterator[None]:
    """In the block LoopHeld is raised in code of this thread that holds the running loop for `limit` seconds."""
    loop, holder = asyncio.get_running_loop(), threading.get_ident()
    beats = [time.monotonic()]
    over = threading.Event()

    def beat() -> None:
        beats[0] = time.monotonic()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY):
            if time.monotonic() - beats[0] > limit + _LOOK_EVERY:
                # Again at each look, for code that catches even this.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(holder), ctypes.py_object(LoopHeld))
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(beat)

    watcher = threading.Thread(target=watch, name="aenv-held-loop", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(holder), None)  # what was not raised yet
