"""Kinds of options that several commands share."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click
from click.types import FloatParamType, IntParamType

from ..base import logs, quantities, refs, settings
from ..base.errors import InvalidRequest
from . import arguments, output

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Number(IntParamType):
    """A whole number of at least `least`, and at most `most`; without them, any."""

    def __init__(self, least: int | None = None, most: int | None = None, name: str = "N") -> None:
        self.name = name
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"must be a whole number, got {value!r}", param, ctx)
        if self._least is not None and (number < self._least or (self._most is not None and number > self._most)):
            self.fail(f"must be {self._bounds(self._least)}, got {str(value)!r}", param, ctx)
        return number

    def _bounds(self, least: int) -> str:
        if self._most is not None:
            return f"from {least} to {self._most}"
        return f"greater than {least - 1}" if least > 0 else f"{least} or greater"


class Quantity(FloatParamType):
    """A number that `parse` reads, such as "30s" or "2Gi"."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self._parse(value)
        except InvalidRequest as error:
            self.fail(error.message, param, ctx)


def _number(least: float, most: float, bounds: str) -> Callable[[str], float]:
    """Reads a number within bounds; "nan" and "inf" are outside all."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if least <= (number := float(text)) <= most and math.isfinite(number):
                return number
        raise InvalidRequest(f"must be a number{bounds}, got {str(text)!r}")

    return read


FILE = click.Path(path_type=Path, dir_okay=False)
PORT = Number(0, 65535, "PORT")
DURATION = Quantity("DURATION", quantities.seconds)
SIZE = Quantity("SIZE", quantities.size_bytes)
CPUS = Quantity("CPUS", quantities.cpus)
RATE = Quantity("RATE", _number(0, 1, " from 0 to 1"))
NUMBER = Quantity("NUMBER", _number(-math.inf, math.inf, ""))
AMOUNT = Quantity("N", _number(0, math.inf, " of 0 or greater"))
SEED = Number()
_LOG_LEVEL = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)

LOG_FILE = click.option(
    "--log-file",
    type=FILE,
    help="Write the log to this file. It rotates at 64 MiB, and five old files are kept.  [default: stderr]",
)

# With a variable each: an address may hold a password, and other users can see the options of a process.
_URL: Any = {"default": "", "metavar": "URL"}
STORE = click.option(
    "--store",
    envvar="AENV_STORE",
    help="Store for records, as in redis://host.  [default: $AENV_STORE, else SQLite in the home folder]",
    **_URL,
)
BLOBS = click.option(
    "--blobs",
    envvar="AENV_BLOBS",
    help="Store for bundles, as in s3://bucket/prefix.  [default: $AENV_BLOBS, else the home folder]",
    **_URL,
)
HOME = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for everything that aenv keeps.  [default: $AENV_HOME, else ~/.aenv]",
)
READY_FD = click.option(
    "--ready-fd", type=int, hidden=True, help="File descriptor that gets the addresses as a line of JSON."
)
MODEL_URL = click.option(
    "--base-url",
    envvar="OPENAI_BASE_URL",
    metavar="URL",
    help="Address of the model's server.  [default: $OPENAI_BASE_URL]",
)
MODEL_KEY = click.option(
    "--api-key-env",
    default="OPENAI_API_KEY",
    metavar="NAME",
    help="Variable that holds the key for the model's server.",
)


def _drawing(ctx: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
    if file and file.suffix.lower() not in (".svg", ".png"):
        raise output.Failure(
            f"{str(file)!r}: charts are SVG or PNG files; use a name that ends with .svg or .png",
            hint=f"--out {file.with_suffix('.svg')}",
            exit_code=2,
        )
    return file


PICTURE = click.option(
    "--out",
    type=FILE,
    callback=_drawing,
    metavar="PICTURE",
    help="Draw a chart of the rewards into this file, SVG or PNG.",
)
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def work_dir(help: str) -> Decorator:
    """The folder in which a command works, as `work_dir`."""
    return click.option(
        "-w",
        "--work-dir",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        default=Path("."),
        help=f"{help}  [default: the current folder]",
    )


def log_level(default: str | None) -> Decorator:
    """How much to log; without a default here, the command has one."""
    return click.option(
        "--log-level",
        type=_LOG_LEVEL,
        default=default,
        help="Lowest level to log.  [default: INFO]",
    )


def host_and_port(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Callback of an option that says where to listen: "127.0.0.1:9100", "[::1]:0", ":9100"."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise click.BadParameter(f"must be HOST:PORT, as in 127.0.0.1:9100, got {value!r}", ctx, parameter)
    return host.strip("[]") or "127.0.0.1", int(port)


def key_in(variable: str | None, flag: str) -> str:
    """The key in the variable that an option names; empty without one."""
    key = settings.variables().get(variable, "") if variable else ""
    if variable and not key:
        raise output.Failure(f"{flag} names the variable {variable}, which is not set")
    return key


def start_log(level: str, file: Path | None, *, as_json: bool = False) -> None:
    """Send the log of a server where its options say."""
    try:
        logs.configure(level, as_json=as_json, file=file)
    except OSError as error:
        raise output.Failure(f"cannot log to {str(file)!r}: {error.strerror}") from error


def version(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of an option that names one version."""
    try:
        return value and refs.exact("name", value).version
    except InvalidRequest:
        raise click.UsageError(f"bad version {value!r}; write it as '1.0.0'", ctx) from None


def parsed_by(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str], T]:
    """Callback of an argument that `parse` reads."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: str) -> T:
        try:
            return parse(value)
        except InvalidRequest as error:
            raise click.UsageError(error.message, ctx) from error

    return callback


reference = parsed_by(refs.parse)
"""Callback of an argument that names an environment: "name" or "name@version"."""


def exact_reference(ctx: click.Context, parameter: click.Parameter, value: str) -> refs.Ref:
    """Callback of an argument that must name one version."""
    ref = reference(ctx, parameter, value)
    if ref.version is None:
        raise click.UsageError(f"{value!r} has no version; write it as '{ref.name}@1.0.0'", ctx)
    return ref


def pairs(*names: str, help: str, form: str = "KEY=VALUE", read: Callable[[str], Any] = str) -> Decorator:
    """An option that can be given many times: a dictionary of what `read` makes of the values."""

    def split(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
        return {key: read(value) for key, value in arguments.split(given, None).pairs.items()}

    return click.option(*names, multiple=True, callback=split, metavar=form, help=help)


SECRETS = pairs(
    "--secret",
    "secrets",
    form="KEY=NAME",
    read=lambda name: {"secret": name},  # as requests refer to it
    help="Set variable KEY to the value of your secret NAME; repeatable.",
)


def network(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> str | dict[str, list[str]] | None:
    """The policy as the gateway takes it: a word, or the hosts that may be reached."""
    if value is None or value in ("none", "full"):
        return value
    return {"egress": [host.strip() for host in value.split(",") if host.strip()]}


def asked(what: str, piped: Callable[[], str]) -> str:
    """What a person types without seeing it; `piped` reads it where stdin is not a terminal."""
    if not sys.stdin.isatty():
        return piped()
    typed: str = click.prompt(what, default="", show_default=False, hide_input=True, err=True)
    return typed


def confirm(what: str, yes: bool, flag: str = "-y") -> None:
    """Go on only if `yes`, or if the person at the terminal agrees to `what`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise output.Failure(
            f"cannot ask for confirmation to {what}: stdin is not a terminal", hint=f"pass {flag}"
        )
    click.confirm(f"{what}?", abort=True, err=True)
