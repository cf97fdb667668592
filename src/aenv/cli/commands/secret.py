"""`aenv secret`: values that a gateway keeps under a name, and gives to instances as variables."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import quote

import click

from .. import connection, output, parameters
from ..connection import Gateway
from ..help_pages import CommandGroup
from ..output_formats import formats


@click.group("secret", cls=CommandGroup, examples=("aenv secret set OPENAI_API_KEY < key.txt", "aenv secret list"))
def command() -> None:
    """Manage secrets, which instances get as variables.

    The gateway never shows their values.
    """


@command.command("set", examples=("aenv secret set OPENAI_API_KEY", "aenv secret set OPENAI_API_KEY < key.txt"))
@click.argument("name")
@connection.options
def set_(gateway: Gateway, name: str) -> None:
    """Create a secret, or change its value.

    The value is asked for, or read from a pipe without the line break at its end.
    """
    value = parameters.asked("Value", sys.stdin.read).removesuffix("\n").removesuffix("\r")
    if not value:
        raise output.Failure("the value is empty", hint=f"to remove the secret, use 'aenv secret rm {name}'")
    gateway.run(lambda api: api.call("PUT", _path(name), {"value": value}))
    output.talk(f"set the secret {name!r}; running instances keep the old value")


@command.command("list", examples=("aenv secret list",))
@connection.options
@formats()
def list_(gateway: Gateway, as_json: bool) -> None:
    """List the names of your secrets, and when they were set."""
    found: list[dict[str, Any]] = gateway.run(lambda api: api.call("GET", "/secret"))
    rows = [(one["name"], output.minute(one["created_at"]), output.minute(one["updated_at"])) for one in found]
    nothing = "no secrets; create one with 'aenv secret set NAME'"
    output.answer(found, ("Name", "Created", "Updated"), rows, as_json=as_json, nothing=nothing)


@command.command("rm", examples=("aenv secret rm OPENAI_API_KEY",))
@click.argument("name")
@connection.options
def rm(gateway: Gateway, name: str) -> None:
    """Remove a secret.

    Running instances keep its value.
    """
    gateway.run(lambda api: api.call("DELETE", _path(name)))
    output.talk(f"removed the secret {name!r}")


def _path(name: str) -> str:
    return f"/secret/{quote(name, safe='')}"
