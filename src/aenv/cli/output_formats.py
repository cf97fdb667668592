"""The one way in which commands offer output formats: for people, or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

PUBLISHED = ("-f", "--format")
"""What some published commands call the option; it stays beside the name of today."""


def formats(
    *also: str,
    names: Sequence[str] = ("-o", "--output"),
    json_names: Sequence[str] = ("--json",),
    plain: str = "table",
    json_help: str = "",
) -> Callable[[Function], Function]:
    """Adds `--output table|json` and `--json` to a command, which gets `as_json`.

    `also` are further names of the first option, `plain` is the word for what people read.
    """
    choice = click.option(
        *names,
        *also,
        "output_format",
        type=click.Choice([plain, "json"]),
        default=plain,
        expose_value=False,
        callback=_note,
        help="Format of the output.",
    )
    flag = click.option(
        *json_names,
        "json_flag",
        is_flag=True,
        expose_value=False,
        callback=_note,
        help=json_help or f"Print JSON. The same as {names[-1]} json.",
    )
    return lambda command: choice(flag(command))


def _note(ctx: click.Context, parameter: click.Parameter, value: str | bool) -> None:
    ctx.params["as_json"] = ctx.params.get("as_json", False) or value in (True, "json")
