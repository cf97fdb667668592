"""Programs that the gateway starts in threads: one whose caller goes away does not stay behind."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aenv.engines import spawning


async def test_a_caller_that_is_cancelled_while_a_program_starts_leaves_no_process(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    children: list[spawning.Child] = []

    def start() -> spawning.Child:
        begun.set()
        go_on.wait()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            children.append(spawning.start(("sleep", "1000"), tmp_path, dict(os.environ), [null, null, null]))
        finally:
            os.close(null)
        return children[0]

    with ThreadPoolExecutor(1) as threads:
        starting = asyncio.create_task(spawning.started(threads, start))
        await asyncio.to_thread(begun.wait)
        for _ in range(2):  # however often
            starting.cancel()
            await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
    (child,) = children
    assert child.returncode == -9
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


async def test_a_program_that_cannot_be_started_is_the_callers_to_hear_of(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads, pytest.raises(FileNotFoundError):
        await spawning.started(threads, lambda: spawning.start(("/no/such",), tmp_path, {}, []))
