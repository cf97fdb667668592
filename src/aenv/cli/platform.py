"""Where commands find the hub and the gateway: variables, then cli_config.json, then the user's own platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ..base import settings
from ..base.errors import ConnectFailed, Unauthenticated
from ..client import address, embedded, where
from ..client.api import Api
from ..client.hub import Hub
from . import config_file

T = TypeVar("T")

_RETRIES = 3
_START_TIMEOUT = 60.0


def hub_address() -> tuple[str | None, str | None, float]:
    """The hub's address, our key for it, and how long to wait for its answers. No address: the user's own."""
    known = settings.client_settings()
    variable = (known.hub_url, settings.HUB_VARIABLE) if known.hub_url else None
    found = where.find(known, None, variable=variable, kept=config_file.kept(for_hub=True))
    return found.url, found.api_key, config_file.load()["hub_config"]["timeout"] or 30


@asynccontextmanager
async def hub(at: str | None = None, with_key: str | None = None) -> AsyncIterator[Hub]:
    """The hub, for the time of the block; another than the configured one where `at` says so."""
    url, key, timeout = hub_address()
    if at:
        url, key = at if isinstance(at, address.Located) else address.Located(at, "the command line"), with_key
    if url:
        origin = address.control_origin(url)
    else:
        origin = await embedded.platform(settings.client_settings(), _START_TIMEOUT, instances=False)
    async with Api(origin, api_key=key, timeout=timeout, max_retries=_RETRIES) as api:
        try:
            yield Hub(api)
        except ConnectFailed as error:
            error.details["hint"] = "aenv serve, in another terminal; or aenv login URL"
            raise
        except Unauthenticated as error:
            error.details["hint"] = f"aenv login {url or 'URL'}"
            raise


def ask_hub(question: Callable[[Hub], Awaitable[T]], at: str | None = None, with_key: str | None = None) -> T:
    """What the hub answers."""

    async def ask() -> T:
        async with hub(at, with_key) as there:
            return await question(there)

    return asyncio.run(ask())
