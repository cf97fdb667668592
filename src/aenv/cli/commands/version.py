"""`aenv version`: which aenv this is, where it was installed from, and what it runs on."""

from __future__ import annotations

import sys

import click

from .. import output
from ..help_pages import documented
from ..output_formats import formats


@documented("version", examples=("aenv version", "aenv version --short"))
@click.option("-s", "--short", is_flag=True, help="Print only the version number.")
@formats(json_names=("-j", "--json"), plain="text")
def command(short: bool, as_json: bool) -> None:
    """Print the versions of aenv and Python, and where aenv came from."""
    from aenv import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    if short:
        output.data(__version__)
    elif as_json:
        values = {"version": __version__, "python": python, "platform": sys.platform, "installed_from": _source()}
        output.json(values)
    else:
        output.data(f"aenv {__version__} (Python {python}, {sys.platform}), installed from {_source()}")


def _source() -> str:
    """Where the installer took the package from, as it wrote that down (PEP 610)."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import unquote

    try:
        written = metadata.distribution("aenvironment").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return f"the source folder '{Path(__file__).parents[3]}'"
    if written is None:
        return "a package index"
    told = json.loads(written)
    path = unquote(told["url"].removeprefix("file://"))
    if "vcs_info" in told:
        return f"'{path}' at {told['vcs_info'].get('commit_id', 'an unknown commit')}"
    is_editable = told.get("dir_info", {}).get("editable", False)
    return f"'{path}'{' (editable)' if is_editable else ''}"
