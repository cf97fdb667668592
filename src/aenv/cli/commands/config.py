"""`aenv config`: show and change the settings of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from .. import config_file, output, parameters
from ..help_pages import CommandGroup
from ..output_formats import PUBLISHED, formats

_REVEAL = click.option("--reveal", is_flag=True, help="Show passwords and keys as well.")


@click.group("config", cls=CommandGroup, examples=("aenv config show", "aenv config set owner ada"))
def command() -> None:
    """Show and change the settings in cli_config.json.

    The file in use is the first of ~/.aenv/cli_config.json ($AENV_HOME), ./.aenv/cli_config.json and
    /etc/aenv/cli_config.json. Write a nested key with dots, as in hub_config.api_key.
    """


@command.command("show", examples=("aenv config show", "aenv config show --key hub_config --json"))
@click.option("--key", help="Show only this part of the settings.")
@formats(*PUBLISHED)
@_REVEAL
def show(key: str | None, as_json: bool, reveal: bool) -> None:
    """Print all settings, defaults included."""
    values = _shown(key, reveal)
    if as_json or not isinstance(values, dict):
        output.json(values)
    else:
        output.table(("Key", "Value"), list(_rows(values, f"{key}." if key else "")))


@command.command("get", examples=("aenv config get hub_config.timeout",))
@click.argument("key")
@_REVEAL
def get(key: str, reveal: bool) -> None:
    """Print one setting.

    A string is printed as it is, any other value as JSON.
    """
    value = _shown(key, reveal)
    output.data(value) if isinstance(value, str) else output.json(value)


@command.command("set", examples=("aenv config set owner ada", "aenv config set hub_config.timeout 60"))
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Change one setting.

    VALUE is read as JSON if it is valid JSON, and as a string otherwise.
    """
    file = config_file.path()
    values = config_file.read(file, warn=False)
    config_file.assign(values, key, value)
    config_file.check(file, values)
    config_file.write(file, values)


@command.command("init", examples=("aenv config init",))
@click.option("--path", "file", type=click.Path(path_type=Path), help="Write this file instead of your own one.")
def init(file: Path | None) -> None:
    """Write a new file with the default settings."""
    file = file.expanduser() if file else config_file.own_path()
    if file.exists():
        raise output.Failure(f"'{file}' exists already", hint="aenv config reset")
    config_file.write(file, config_file.DEFAULTS)
    output.data(str(file))


@command.command("reset", examples=("aenv config reset", "aenv config reset --force"))
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
def reset(force: bool) -> None:
    """Replace all settings in the file in use with the defaults."""
    file = config_file.path()
    parameters.confirm(f"replace all settings in '{file}'", force, "--force")
    config_file.write(file, config_file.DEFAULTS)


@command.command("load", examples=("aenv config load settings.json",))
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def load(file: Path) -> None:
    """Replace all settings in the file in use with those in FILE."""
    values = config_file.read(file)
    config_file.write(config_file.path(), values)


@command.command("export", examples=("aenv config export --output settings.json",))
@click.option("--output", "file", type=click.Path(path_type=Path), help="File to write.  [default: stdout]")
@click.option("--reveal", is_flag=True, help="Include passwords and keys, which are left out by default.")
def export(file: Path | None, reveal: bool) -> None:
    """Write all settings in the form that 'aenv config load' reads."""
    values = config_file.load()
    values = values if reveal else config_file.masked(values, hidden="")
    if file:
        config_file.write(file, values)
    else:
        output.data(json.dumps(values, indent=2, ensure_ascii=False))


@command.command("path", examples=("aenv config path",))
def path() -> None:
    """Print the path of the file in use."""
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
