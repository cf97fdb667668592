"""Options of `aenv serve` and `aenv hub`, made of the settings of a gateway: `GatewaySettings` says them all."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from ..base import config, origins
from ..base.errors import InvalidRequest
from ..base.settings import GatewayOption, GatewaySettings
from . import parameters
from .parameters import Decorator


def options(*names: str, **defaults: Any) -> Decorator:
    """Adds the options of these settings, in this order; the command gets them under the names of the fields."""
    declared = {each.name: each for each in fields(GatewaySettings)}

    def add(command: Any) -> Any:
        for name in reversed(names):
            told: GatewayOption = declared[name].metadata["option"]
            default = defaults.get(name, declared[name].default)
            flag = told.name or f"--{name.replace('_', '-')}"
            command = click.option(flag, name, help=told.help, **_form(told, default))(command)
        return command

    return add


def _form(told: GatewayOption, default: Any) -> dict[str, Any]:
    """How click reads the option."""
    if isinstance(default, bool):
        # The option of a setting that holds by default turns it off.
        return {"is_flag": True, "callback": lambda ctx, parameter, given: given != default}
    if isinstance(told.kind, tuple):
        chosen: dict[str, Any] = {"type": click.Choice(told.kind), "default": default or None}
        return chosen if default else {**chosen, "callback": lambda ctx, parameter, given: given or ""}
    if told.kind in _REPEATED:
        return {"multiple": True, **_REPEATED[told.kind]}
    return {**_KINDS.get(told.kind, {}), "default": told.default or default}


def _origins(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    try:
        return frozenset(origins.read(value) for value in values)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, ctx, parameter) from error


def _origin(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    return next(iter(_origins(ctx, parameter, (value,)))) if value else ""


def _numbers(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Options such as "experiment=100"."""
    found = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not name or not equals or not number.isdecimal():
            raise click.BadParameter(f"must be NAME=NUMBER, got {value!r}", ctx, parameter)
        found[name] = int(number)
    return found


def _folders(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    """Options such as "KIT_DATA_DIR=/srv/kit"."""
    found = {}
    for value in values:
        name, _, path = value.partition("=")
        if not config.is_folder_variable(name):
            message = f"must be NAME_DATA_DIR=PATH or NAME_GIT_DIR=PATH, got {value!r}"
            raise click.BadParameter(message, ctx, parameter)
        if not path or not Path(path).expanduser().is_dir():
            raise click.BadParameter(f"{path!r} is not a folder", ctx, parameter)
        found[name] = Path(path).expanduser().absolute()
    return found


_KINDS: dict[str, dict[str, Any]] = {
    "port": {"type": parameters.PORT},
    "count": {"type": parameters.Number(0)},
    "rate": {"type": parameters.AMOUNT},
    "cpus": {"type": parameters.CPUS},
    "size": {"type": parameters.SIZE},
    "duration": {"type": parameters.DURATION},
    "origin": {"callback": _origin, "metavar": "URL"},
    "address": {"callback": parameters.host_and_port, "metavar": "HOST:PORT"},
}
_REPEATED: dict[str, dict[str, Any]] = {
    "ROUTE=N": {"callback": _numbers, "metavar": "ROUTE=N"},
    "LABEL=N": {"callback": _numbers, "metavar": "LABEL=N"},
    "VARIABLE=PATH": {"callback": _folders, "metavar": "VARIABLE=PATH"},
    "folders": {"type": click.Path(path_type=Path, exists=True, file_okay=False)},
    "urls": {"callback": lambda ctx, parameter, values: frozenset(values), "metavar": "URL"},
    "origins": {"callback": _origins, "metavar": "ORIGIN"},
}
