"""Worker threads: bounded, reused, and given up when a call is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aenv.base.errors import Unavailable
from aenv.inside.author import threads as threads_module
from aenv.inside.author.threads import Threads


async def test_results_and_errors_come_back():
    threads = Threads()
    assert await threads.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter(())))


async def test_a_thread_is_used_again():
    threads = Threads()
    assert len({await threads.run(threading.get_ident) for _ in range(5)}) == 1


async def test_no_more_run_at_once_than_the_limit():
    threads = Threads(limit=2)
    running, most, lock, gate = 0, 0, threading.Lock(), threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait()  # two at a time, or nobody gets on
        with lock:
            running -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(6)))
    assert most == 2


async def test_calls_that_never_come_back_are_counted_until_they_do(monkeypatch):
    monkeypatch.setattr(threads_module, "MAX_ABANDONED", 2)  # the real number would take as many threads
    threads = Threads(limit=1)
    gate = threading.Event()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await threads.run(gate.wait)
    with pytest.raises(Unavailable, match="2 earlier calls never came back"):
        await threads.run(lambda: None)
    gate.set()
    while threads._abandoned:
        await asyncio.sleep(0)
    assert await threads.run(lambda: "again") == "again"
