"""Processes that write into a store at the same time, for `conformance/store.py`.

A writer opens the store, says "ready", and begins when it is told to; then it prints one line for each thing done.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import pickle
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aenv.control.stores.base import LimitReached, Put, Stale

KIND = "thing"


async def increment(store: Any, times: int) -> None:
    """Add 1 to one document so often, each time with the revision that was read."""
    for _ in range(times):
        while True:
            (found,) = await store.get(KIND, "counter")
            value, revision = (found.value["n"], found.revision) if found else (0, 0)
            with contextlib.suppress(Stale):
                await store.write(Put(KIND, "counter", {"n": value + 1}, revision=revision), durable=False)
                break


async def take(store: Any, name: str, attempts: int, limit: int) -> None:
    """Write so many documents that each add 1 to a total, and tell which of them the limit allowed."""
    for number in range(attempts):
        put = Put(KIND, f"{name}-{number}", {}, revision=0, counts={"taken": 1}, limits={"taken": limit})
        with contextlib.suppress(LimitReached):
            await store.write(put, durable=False)
            print(put.key, flush=True)


async def pairs(store: Any, name: str) -> None:
    """Write two documents at once, for ever, and tell each pair when it is written."""
    number = 0
    while True:
        left, right = (Put(KIND, f"{name}-{side}-{number}", {}, terms={side: ""}) for side in ("left", "right"))
        await store.write(left, right, durable=False)
        print(number, flush=True)
        number += 1


class Writer:
    """A writer, as the test that started it sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"go\n")

    async def line(self) -> str:
        assert self.process.stdout
        return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def rest(self) -> list[str]:
        """All that it still says; returns when it has ended."""
        stdout, _ = await self.process.communicate()
        return stdout.decode().splitlines()


@contextlib.asynccontextmanager
async def writing(
    make_store: Callable[[], Any], task: Callable[..., Any], *arguments: Any
) -> AsyncIterator[Writer]:
    """A writer in a process of its own, which has opened its store; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        cwd=Path(__file__).parent.parent,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin
        job = pickle.dumps((make_store, task.__name__, arguments))
        process.stdin.write(base64.b64encode(job) + b"\n")
        writer = Writer(process)
        assert await writer.line() == "ready"
        yield writer
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def main() -> None:
    make_store, task, arguments = pickle.loads(base64.b64decode(sys.stdin.readline()))
    async with make_store() as store:
        print("ready", flush=True)
        if sys.stdin.readline():
            await {"increment": increment, "take": take, "pairs": pairs}[task](store, *arguments)


if __name__ == "__main__":
    asyncio.run(main())
