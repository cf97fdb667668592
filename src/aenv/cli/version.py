"""`aenv version`: which aenv this is, and what it runs on."""

from __future__ import annotations

import sys

import click

from . import output


@click.command("version")
@click.option("-s", "--short", is_flag=True, help="Print the number alone.")
@click.option("-j", "--json", "as_json", is_flag=True, help="Print JSON.")
def command(short: bool, as_json: bool) -> None:
    """Print the version of aenv, of Python and of the platform."""
    from aenv import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    if short:
        output.data(__version__)
    elif as_json:
        output.json({"version": __version__, "python": python, "platform": sys.platform})
    else:
        output.data(f"aenv {__version__} (Python {python}, {sys.platform})")
