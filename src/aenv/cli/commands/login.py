"""`aenv login`: remember a gateway's address and our key for it."""

from __future__ import annotations

import sys

import click

from . import config_file, output


@click.command("login")
@click.argument("url", required=False)
@click.option("--api-key", metavar="KEY", help="The key.  [default: asked for, or read from a pipe]")
def command(url: str | None, api_key: str | None) -> None:
    """Check a key at the gateway or hub at URL (the one in use unless given), and remember both.

    They are kept in ~/.aenv/cli_config.json ($AENV_HOME), which only you can read.
    """
    from ..client.hub import Hub
    from . import platform

    url = url or platform.hub_address()[0]
    if not url:
        raise click.UsageError("missing URL; nothing is configured either")
    if api_key is None:
        api_key = _ask()
    who = platform.ask_hub(Hub.whoami, url, api_key)
    file = config_file.own_path()
    values = config_file.read(file)
    values["system_url"] = url
    # Both addresses: one key goes to them, and must not go to what was there before.
    values["hub_config"] = {**values.get("hub_config", {}), "hub_backend": url, "api_key": api_key}
    config_file.write(file, values)
    output.talk(f"logged in to {url} as {who['user']} ({who['role']})")


def _ask() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    key: str = click.prompt("API key", default="", show_default=False, hide_input=True, err=True)
    return key
