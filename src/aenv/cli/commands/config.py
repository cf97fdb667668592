"""`aenv config`: look at and change what the command line remembers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from .. import config_file, output, parameters
from ..formats import PUBLISHED, formats
from ..groups import Group

_REVEAL = click.option("--reveal", is_flag=True, help="Show passwords and keys too.")


@click.group("config", cls=Group)
def command() -> None:
    """Look at and change the settings of the command line, in cli_config.json.

    The file is the first of ~/.aenv/cli_config.json ($AENV_HOME), ./.aenv/cli_config.json and
    /etc/aenv/cli_config.json. A key is dotted: hub_config.api_key.
    """


@command.command("show")
@click.option("--key", help="Show this part alone.")
@formats(*PUBLISHED)
@_REVEAL
def show(key: str | None, as_json: bool, reveal: bool) -> None:
    """Print every setting, defaults included."""
    values = _shown(key, reveal)
    if as_json or not isinstance(values, dict):
        output.json(values)
    else:
        output.table(("Key", "Value"), list(_rows(values, f"{key}." if key else "")))


@command.command("get")
@click.argument("key")
@_REVEAL
def get(key: str, reveal: bool) -> None:
    """Print one setting: a text as it is, anything else as JSON."""
    value = _shown(key, reveal)
    output.data(value) if isinstance(value, str) else output.json(value)


@command.command("set")
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Change one setting. VALUE is JSON where it can be, and a text otherwise."""
    file = config_file.path()
    values = config_file.read(file, warn=False)
    config_file.assign(values, key, value)
    config_file.check(file, values)
    config_file.write(file, values)


@command.command("init")
@click.option("--path", "file", type=click.Path(path_type=Path), help="Make this file instead of your own.")
def init(file: Path | None) -> None:
    """Make a file that holds the defaults."""
    file = file.expanduser() if file else config_file.own_path()
    if file.exists():
        raise output.Failure(f"'{file}' exists already", hint="aenv config reset, for the defaults")
    config_file.write(file, config_file.DEFAULTS)
    output.data(str(file))


@command.command("reset")
@click.option("--force", is_flag=True, help="Do not ask.")
def reset(force: bool) -> None:
    """Put the defaults in the place of everything in the file in use."""
    file = config_file.path()
    parameters.confirm(f"lose all settings in '{file}'", force, "--force")
    config_file.write(file, config_file.DEFAULTS)


@command.command("load")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def load(file: Path) -> None:
    """Take all settings from FILE, in the place of those in the file in use."""
    values = config_file.read(file)
    config_file.write(config_file.path(), values)


@command.command("export")
@click.option("--output", "file", type=click.Path(path_type=Path), help="Write to this file.  [default: stdout]")
@click.option("--reveal", is_flag=True, help="Keep passwords and keys, which are left out otherwise.")
def export(file: Path | None, reveal: bool) -> None:
    """Write the settings as a file that `aenv config load` reads."""
    values = config_file.load()
    values = values if reveal else config_file.masked(values, hidden="")
    if file:
        config_file.write(file, values)
    else:
        output.data(json.dumps(values, indent=2, ensure_ascii=False))


@command.command("path")
def path() -> None:
    """Print which file is in use, or would be made."""
    output.data(str(config_file.path()))


def _shown(key: str | None, reveal: bool) -> Any:
    values = config_file.load()
    values = values if reveal else config_file.masked(values)
    return config_file.find(values, key) if key else values


def _rows(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _rows(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
