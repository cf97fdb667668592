"""`Group`: many environments that are made at once and given back together."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from .environment import Environment


class Group:
    """Await it for a list of ready environments, or use it as a context that releases them all at its end."""

    def __init__(self, environments: list[Environment]) -> None:
        self._environments = environments

    def __await__(self) -> Generator[Any, None, list[Environment]]:
        return self._create().__await__()

    async def __aenter__(self) -> list[Environment]:
        return await self._create()

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(env.release() for env in self._environments))

    async def _create(self) -> list[Environment]:
        if self._environments:
            launched = await self._environments[0]._launch_many(len(self._environments))
            for env, one in zip(self._environments, launched, strict=True):
                env._take(one)
        return self._environments
