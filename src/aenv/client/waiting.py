"""What instances wait for while they are created, for a person who waits for them: the gateway says it of each.

The command that shows progress asks; the code that creates instances notes their ids. Else nothing is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..base import wire
from ..base.addresses import Origin
from ..base.errors import AEnvError
from .api import Api

_LOOK_EVERY = 0.5  # seconds
_AT_A_TIME = 16  # instances that are asked about in one look: a batch can have a thousand

_looking: ContextVar[_Waits | None] = ContextVar("waits", default=None)


@dataclass(frozen=True)
class Told:
    """How many of the instances that are being created are ready, and what the slowest of the others waits for."""

    ready: int
    total: int
    step: str


@dataclass
class _Waits:
    """The instances that are being created, and where; those that were asked for first come first."""

    waiting: dict[str, tuple[Origin, str | None]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)

    async def look(self) -> Told:
        step = ""
        for id, (control, api_key) in list(self.waiting.items())[:_AT_A_TIME]:
            # Another gateway may be older, and the instance may not be known yet: it says nothing then.
            with suppress(AEnvError):
                async with Api(control, api_key=api_key, max_retries=0) as api:
                    found = await api.get_instance(id)
                if found.status == wire.EnvStatus.RUNNING and id in self.waiting:
                    del self.waiting[id]
                    self.ready.add(id)
                step = step or found.reason
        return Told(len(self.ready), len(self.ready) + len(self.waiting), step)


@asynccontextmanager
async def looking(show: Callable[[Told], None]) -> AsyncIterator[None]:
    """Tell `show`, twice a second, of what this task creates in the block, and the tasks that it starts there."""
    waits = _Waits()

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            show(await waits.look())

    before = _looking.set(waits)
    task = asyncio.create_task(look())
    try:
        yield
    finally:
        _looking.reset(before)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def noted(control: Origin, api_key: str | None, ids: Iterable[str]) -> Iterator[None]:
    """These instances are created in the block."""
    waits = _looking.get()
    if waits is None:
        yield
        return
    named = list(ids)
    waits.waiting.update(dict.fromkeys(named, (control, api_key)))
    try:
        yield
    finally:
        for id in named:
            waits.waiting.pop(id, None)
        waits.ready.difference_update(named)
