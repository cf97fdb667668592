"""`aenv init`: a new environment project, from a template. Offline."""

from __future__ import annotations

from pathlib import Path

import click

from ...base import refs
from ...base.errors import InvalidRequest
from .. import output, scaffold


def _new_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return refs.check_new_name(value)
    except InvalidRequest as error:
        raise click.UsageError(error.message, ctx) from error


def _version(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        refs.parse(f"name@{value}")
    except InvalidRequest:
        raise click.UsageError(f"bad version {value!r}; write it as '1.0.0'", ctx) from None
    return value


@click.command("init")
@click.argument("name", callback=_new_name)
@click.option("-v", "--version", default="1.0.0", callback=_version, show_default=True, help="Its first version.")
@click.option(
    "-t",
    "--template",
    type=click.Choice(scaffold.TEMPLATES),
    default="default",
    show_default=True,
    help="What to begin with.",
)
@click.option(
    "-w",
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    help="Where to make the project's folder.  [default: the current folder]",
)
@click.option(
    "--force", is_flag=True, help="Write into a folder that is not empty; replaces only the template's files."
)
@click.option("--config-only", is_flag=True, help="Write config.json alone, into the work directory itself.")
def command(name: str, version: str, template: str, work_dir: Path, force: bool, config_only: bool) -> None:
    """Make the project of a new environment.

    \b
    default    a tool, a function and a reward, with comments that teach
    fastmcp    a FastMCP server, served as it is
    benchmark  tasks in a file, a seeded reset, a graded reward
    service    long-running, with state that survives a restart
    """
    files = scaffold.render(template, name, version)
    if config_only:
        folder, files = work_dir, {Path("config.json"): files[Path("config.json")]}
        taken = (folder / "config.json").exists()
    else:
        folder = work_dir / name
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken and not force:
        what = folder / "config.json" if config_only else folder
        raise output.Failure(
            f"'{what}' exists already", hint="--force replaces the template's files, and no others"
        )

    written = scaffold.write(folder, files)
    for path in written:
        output.data(str(path))
    if not config_only:
        output.talk(f"\nNext:\n  cd {folder}\n  aenv run")
