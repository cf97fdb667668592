"""The gateway that a command talks to: its options, its address, and what both print alike."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..base import settings
from ..base.errors import ConnectFailed, Unauthenticated
from . import arguments, config_file, output, progress

if TYPE_CHECKING:
    from ..base.addresses import Origin
    from ..client.api import Api

T = TypeVar("T")


@dataclass(frozen=True)
class Gateway:
    """Where the gateway is, None being the platform of this user, and who asks."""

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

    def run_at(self, act: Callable[[Origin], Awaitable[T]]) -> T:
        """The same, for what opens its own connections."""
        import asyncio

        async def located() -> T:
            return await act(await self._origin())

        try:
            return asyncio.run(located())
        except ConnectFailed as error:
            raise output.Failure(error.message, hint="aenv serve, in another terminal; or --system-url") from error
        except Unauthenticated as error:
            raise output.Failure(error.message, hint=f"aenv login {self.url or 'URL'}; or --api-key") from error

    async def _origin(self) -> Origin:
        from ..client.address import control_origin
        from ..client.embedded import platform

        if self.url:
            return control_origin(self.url)
        with progress.lines("starting a platform of your own"):
            return await platform(settings.client_settings(), 60.0)


def known(
    system_url: str | None = None, api_key: str | None = None, *, option: str = "the option --system-url"
) -> Gateway:
    """The gateway of the options, else of the variables, else of cli_config.json."""
    from ..client import where

    kept = config_file.kept()
    found = where.find(settings.client_settings(), system_url, api_key, argument=option, kept=kept)
    return Gateway(found.url, found.api_key, config_file.load()["owner"])


def options(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --system-url and --api-key, and hands the command its `gateway`."""

    @click.option(
        "--system-url", metavar="URL", help="The gateway.  [default: $AENV_SYSTEM_URL, or cli_config.json]"
    )
    @click.option("--api-key", metavar="KEY", help="Who asks.  [default: $AENV_API_KEY, or cli_config.json]")
    @functools.wraps(command)
    def with_gateway(system_url: str | None, api_key: str | None, **given: Any) -> T:
        return command(gateway=known(system_url, api_key), **given)

    return with_gateway


def formats(command: Callable[..., T]) -> Callable[..., T]:
    """Adds --output and --json, and tells the command whether to print `as_json`."""

    @click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        help="For people, or for programs.",
    )
    @click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
    @functools.wraps(command)
    def with_format(form: str, as_json: bool, **given: Any) -> T:
        return command(as_json=as_json or form == "json", **given)

    return with_format


def pairs(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Callback of an option that takes KEY=VALUE, any number of times."""
    return dict(arguments.split(value, None).pairs)


def references(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, dict[str, str]]:
    """Callback of an option that takes KEY=NAME of secrets, any number of times: as requests refer to them."""
    return {variable: {"secret": name} for variable, name in pairs(ctx, parameter, value).items()}


SECRETS = click.option(
    "--secret",
    "secrets",
    multiple=True,
    callback=references,
    metavar="KEY=NAME",
    help="A variable with the value of your secret NAME.",
)


def environment(name: str | None) -> str:
    """The environment that a command is about: as given, else that of the project in the current folder."""
    if name:
        return name
    from pathlib import Path

    from . import project

    return str(project.load(Path()).ref)


def environment_columns(thing: Mapping[str, Any]) -> tuple[str, str]:
    """Name and version of what an instance or a service is made of."""
    env = thing.get("env") or {}
    return env.get("name") or "-", env.get("version") or "-"
