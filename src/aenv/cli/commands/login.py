"""`aenv login`: save a gateway's address and the key for it."""

from __future__ import annotations

import sys

import click

from ...base.errors import Unauthenticated
from .. import config_file, connection, output, parameters
from ..help_pages import documented


@documented("login", examples=("aenv login http://gateway:8080", "aenv login https://gateway.example < key.txt"))
@click.argument("url", required=False)
@click.option("--api-key", metavar="KEY", help="Key to check and save.  [default: asked for, or read from a pipe]")
def command(url: str | None, api_key: str | None) -> None:
    """Check a key at a gateway or hub, and save both.

    URL is the address; without it, the address in use. Both are saved in ~/.aenv/cli_config.json ($AENV_HOME),
    which only you can read. The SDK uses them too.
    """
    from ...client.address import Located
    from ...client.hub import Hub
    from ...client.where import Where

    url = url or connection.hub_address().url
    if not url:
        raise click.UsageError("missing argument 'URL': no gateway is configured")
    if api_key is None:
        api_key = parameters.asked("API key", sys.stdin.readline).strip()
    try:
        who = connection.ask_hub(Hub.whoami, Where(Located(url, "the command line"), api_key or None))
    except Unauthenticated as error:
        if api_key:
            raise
        raise output.Failure(
            f"no key was given, and {url} asks for one",
            hint=f"type it, or aenv login {url} < key.txt, or --api-key KEY",
        ) from error
    file = config_file.own_path()
    values = config_file.read(file, warn=False)  # the hub's settings have been read with warnings
    values["system_url"] = url
    # Both addresses: one key goes to them, and must not go to what was there before.
    values["hub_config"] = {**values.get("hub_config", {}), "hub_backend": url, "api_key": api_key}
    config_file.write(file, values)
    output.talk(f"logged in to {url} as {who.user} ({who.role})")
