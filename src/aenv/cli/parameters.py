"""Kinds of options that several commands share."""

from __future__ import annotations

import click

from .. import quantities
from ..errors import InvalidRequest


class _Port(click.IntRange):
    """A port number, shown as PORT."""

    name = "port"

    def __init__(self) -> None:
        super().__init__(0, 65535)


PORT = _Port()
LOG_LEVEL = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)


def seconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that takes a duration such as "30s" or "2m"."""
    try:
        return None if value is None else quantities.seconds(value)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, ctx, parameter) from error
