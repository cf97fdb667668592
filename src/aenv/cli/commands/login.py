"""`aenv login` and `aenv logout`: remember a gateway's address and our key for it, and forget them."""

from __future__ import annotations

import sys

import click

from .. import config_file, connection, output


@click.command("login")
@click.argument("url", required=False)
@click.option("--api-key", metavar="KEY", help="The key.  [default: asked for, or read from a pipe]")
def command(url: str | None, api_key: str | None) -> None:
    """Check a key at the gateway or hub at URL (the one in use unless given), and remember both.

    They are kept in ~/.aenv/cli_config.json ($AENV_HOME), which only you can read; the SDK uses them too.
    """
    from ...client.address import Located
    from ...client.hub import Hub
    from ...client.where import Where

    url = url or connection.hub_address().url
    if not url:
        raise click.UsageError("missing URL; nothing is configured either")
    if api_key is None:
        api_key = _ask()
    who = connection.ask_hub(Hub.whoami, Where(Located(url, "the command line"), api_key or None))
    file = config_file.own_path()
    values = config_file.read(file)
    values["system_url"] = url
    # Both addresses: one key goes to them, and must not go to what was there before.
    values["hub_config"] = {**values.get("hub_config", {}), "hub_backend": url, "api_key": api_key}
    config_file.write(file, values)
    output.talk(f"logged in to {url} as {who['user']} ({who['role']})")


@click.command("logout")
def logout() -> None:
    """Forget the address and the key that `aenv login` has kept. The key stays valid at its gateway."""
    file = config_file.own_path()
    values = config_file.read(file)
    hub = dict(values.get("hub_config", {}))
    url = values.pop("system_url", None) or hub.get("hub_backend")
    key = hub.pop("api_key", None)
    hub.pop("hub_backend", None)
    if not (url or key):
        output.talk("not logged in")
        return
    if "hub_config" in values:
        values["hub_config"] = hub
    config_file.write(file, values)
    output.talk(f"logged out of {url}")


def _ask() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    key: str = click.prompt("API key", default="", show_default=False, hide_input=True, err=True)
    return key
