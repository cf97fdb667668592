"""The place where instances are made, as the hub knows it; and running there, so that nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ..base import refs, settings
from ..client.address import control_origin
from ..client.api import Api
from ..client.embedded import platform
from ..client.hub import Hub
from . import held_loop, live
from .task_instances import InstanceSource

T = TypeVar("T")

_START = 60.0


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end. Ctrl-C, SIGTERM and a closing terminal end it in order, and then as KeyboardInterrupt."""
    stopped: list[bool] = []

    async def watched() -> T | None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task

        def stop() -> None:
            if not stopped:  # once: what is being given back shall not be left half way
                stopped.append(True)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)
        try:
            return await main()
        except asyncio.CancelledError:
            if stopped:
                return None
            raise
        finally:
            await held_loop.end_others()

    answer = asyncio.run(watched())
    if stopped:
        raise KeyboardInterrupt
    return answer  # type: ignore[return-value]  # None only when it was stopped


@asynccontextmanager
async def known(place: InstanceSource) -> AsyncIterator[InstanceSource]:
    """The place with what the hub's record says about the environment, if there is one."""
    if place.url:
        origin = control_origin(place.url)
    else:
        with live.lines("starting your own platform"):
            origin = await platform(settings.client_settings(), _START)
    async with Api(origin, api_key=place.api_key, max_retries=3) as api:
        record = await Hub(api).find(refs.parse(place.name))
    yield replace(place, digest=(record.digest or record.code_digest or None) if record else None)
