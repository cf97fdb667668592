"""Kinds of options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..base import logs, origins, quantities, refs
from ..base.errors import InvalidRequest
from . import arguments, output


class _Port(click.IntRange):
    """A port number, shown as PORT."""

    name = "port"

    def __init__(self) -> None:
        super().__init__(0, 65535)


PORT = _Port()
LOG_LEVEL = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)

LOG_FILE = click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Log to this file, of 64 MiB; the five before it are kept.  [default: stderr]",
)

# With a variable each: a password in an address is nothing for a list of processes to show.
STORE = click.option(
    "--store",
    default="",
    envvar="AENV_STORE",
    metavar="URL",
    help="Where records are kept: redis://…  [default: $AENV_STORE, or SQLite in the home folder]",
)
BLOBS = click.option(
    "--blobs",
    default="",
    envvar="AENV_BLOBS",
    metavar="URL",
    help="Where bundles are kept: s3://…  [default: $AENV_BLOBS, or a folder in the home folder]",
)


def _origins(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    try:
        return frozenset(origins.read(value) for value in values)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, ctx, parameter) from error


ALLOW_ORIGIN = click.option(
    "--allow-origin",
    "allow_origins",
    multiple=True,
    callback=_origins,
    metavar="ORIGIN",
    help="Let web pages of this origin call, as in http://localhost:6274; any number of times.",
)


def _host_and_port(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise click.BadParameter(f"write {value!r} as 'host:port', as in 127.0.0.1:9100", ctx, parameter)
    return host.strip("[]") or "127.0.0.1", int(port)


METRICS_ADDRESS = click.option(
    "--metrics-address",
    callback=_host_and_port,
    metavar="HOST:PORT",
    help="Answer /metrics here, too, without a token.  [default: none]",
)


def start_log(level: str, file: Path | None, *, as_json: bool = False) -> None:
    """Send the log of a server where its options say."""
    try:
        logs.configure(level, as_json=as_json, file=file)
    except OSError as error:
        raise output.Failure(f"cannot log to {str(file)!r}: {error.strerror}") from error


def seconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of an option that takes a duration such as "30s" or "2m"."""
    try:
        return None if value is None else quantities.seconds(value)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, ctx, parameter) from error


def reference(ctx: click.Context, parameter: click.Parameter, value: str) -> refs.Ref:
    """Callback of an argument that names an environment: "name" or "name@version"."""
    try:
        return refs.parse(value)
    except InvalidRequest as error:
        raise click.UsageError(error.message, ctx) from error


def exact_reference(ctx: click.Context, parameter: click.Parameter, value: str) -> refs.Ref:
    """Callback of an argument that must name one version."""
    ref = reference(ctx, parameter, value)
    if ref.version is None:
        raise click.UsageError(f"{value!r} names no version; write it as '{ref.name}@1.0.0'", ctx)
    return ref


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
    help="Set variable KEY to the value of your secret NAME; repeatable.",
)


def network(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> str | dict[str, list[str]] | None:
    """The policy as the gateway takes it: a word, or the hosts that may be reached."""
    if value is None or value in ("none", "full"):
        return value
    return {"egress": [host.strip() for host in value.split(",") if host.strip()]}


def confirm(what: str, yes: bool, flag: str = "-y") -> None:
    """Go on only if `yes`, or if the person at the terminal agrees to `what`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise output.Failure(f"nobody is there to ask whether to {what}", hint=f"{flag}, to do it without asking")
    click.confirm(f"{what}?", abort=True, err=True)
