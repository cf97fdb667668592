"""The gateway and the hub that a command talks to.

Their addresses and keys are found by `client.where`, in the order that holds for the SDK too. Without an address
it is this user's own platform, which is started when it is needed.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..base import settings
from ..base.errors import ConnectFailed, Unauthenticated
from . import config_file, progress

if TYPE_CHECKING:
    from ..base.addresses import Origin
    from ..client.api import Api
    from ..client.hub import Hub
    from ..client.remote import Remote
    from ..client.where import Where

T = TypeVar("T")

_HUB_RETRIES = 3
_START_TIMEOUT = 60.0  # seconds for a platform of this user's own


@dataclass(frozen=True)
class Gateway:
    """The address of the gateway, None being this user's own platform, and who asks."""

    url: str | None
    api_key: str | None
    owner: str | None

    def run(self, act: Callable[[Api], Awaitable[T]]) -> T:
        """What `act` gives. Nothing is retried: a person at a shell wants to know at once."""
        from ..client.api import Api

        async def connected(origin: Origin) -> T:
            async with Api(origin, api_key=self.api_key, max_retries=0) as api:
                return await act(api)

        return self.run_at(connected)

    def run_on(self, id: str, act: Callable[[Remote], Awaitable[T]]) -> T:
        """The same for one instance: the one whose id is `id`, or begins with it."""
        from ..client.remote import Remote
        from . import prefixes

        async def found(api: Api) -> T:
            return await act(Remote(api, await prefixes.instance(api, id)))

        return self.run(found)

    def run_at(self, act: Callable[[Origin], Awaitable[T]]) -> T:
        """The same, for what opens its own connections."""
        import asyncio

        async def located() -> T:
            with progress.lines("starting your own platform") if not self.url else nullcontext():
                origin = await _origin(self.url)
            return await act(origin)

        with _hints(self.url, "name one with --system-url", f"aenv login {self.url or 'URL'}, or pass --api-key"):
            return asyncio.run(located())


async def _origin(url: str | None, *, instances: bool = True) -> Origin:
    """Where requests go; this user's own platform is started if need be, for `instances` or for its hub alone."""
    from ..client.address import control_origin
    from ..client.embedded import platform

    if url:
        return control_origin(url)
    return await platform(settings.client_settings(), _START_TIMEOUT, instances=instances)


@contextmanager
def _hints(url: str | None, elsewhere: str, log_in: str) -> Iterator[None]:
    """Errors of the block say what to try: where else to look than at `url`, or how to get its key."""
    from ..client import where

    try:
        yield
    except ConnectFailed as error:
        if getattr(url, "source", "").endswith(where.FROM_LOGIN):
            elsewhere += ", or use your own platform after 'aenv logout'"
        error.details["hint"] = f"start a gateway with 'aenv serve', or {elsewhere}"
        raise
    except Unauthenticated as error:
        error.details["hint"] = log_in
        raise


def gateway(system_url: str | None = None, api_key: str | None = None, *, option: str = "--system-url") -> Gateway:
    """The gateway to use; `system_url` is the value of `option`."""
    from ..client import where

    given = _from_option(system_url, option)
    found = where.find(settings.client_settings(), given, api_key, runtime_url="", login=config_file.login())
    return Gateway(found.url, found.api_key, config_file.in_use().owner)


def hub_address(system_url: str | None = None, api_key: str | None = None) -> Where:
    """The hub to use; `system_url` is the value of the option --system-url."""
    from ..client import where

    given = _from_option(system_url, "--system-url")
    return where.find_hub(settings.client_settings(), given, api_key, config_file.login())


def hub_timeout() -> float:
    """Seconds to wait for an answer of the hub."""
    return config_file.in_use().hub_timeout


def _from_option(address: str | None, option: str) -> str | None:
    from ..client.address import Located

    return Located(address, f"the option {option}") if address else None


@asynccontextmanager
async def hub(at: Where | None = None) -> AsyncIterator[Hub]:
    """The hub, for the time of the block."""
    from ..client.api import Api
    from ..client.hub import Hub

    at = at or hub_address()
    origin = await _origin(at.url, instances=False)
    async with Api(origin, api_key=at.api_key, timeout=hub_timeout(), max_retries=_HUB_RETRIES) as api:
        with _hints(at.url, "log in to one with 'aenv login URL'", f"aenv login {at.url or 'URL'}"):
            yield Hub(api)


def ask_hub(question: Callable[[Hub], Awaitable[T]], at: Where | None = None) -> T:
    """What the hub answers."""
    import asyncio

    async def ask() -> T:
        async with hub(at) as there:
            return await question(there)

    return asyncio.run(ask())


SYSTEM_URL = click.option(
    "--system-url",
    metavar="URL",
    help="Address of the gateway.  "
    "[default: $AENV_SYSTEM_URL, else the one of 'aenv login', else your own platform]",
)
API_KEY = click.option(
    "--api-key",
    metavar="KEY",
    help="Key to send to the gateway.  [default: $AENV_API_KEY, else the one of 'aenv login']",
)


def options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --system-url and --api-key, and hands the command its `gateway`."""

    @SYSTEM_URL
    @API_KEY
    @functools.wraps(command)
    def with_gateway(system_url: str | None, api_key: str | None, **given: Any) -> T:
        return command(gateway=gateway(system_url, api_key), **given)

    return with_gateway
