"""`aenv init`: a new environment project, from a template. Offline."""

from __future__ import annotations

from pathlib import Path

import click

from ...base import refs
from .. import output, parameters, scaffold
from ..help_pages import documented


@documented("init", examples=("aenv init my-env", "aenv init my-env --template benchmark"))
@click.argument("name", callback=parameters.parsed_by(refs.check_new_name))
@click.option("-v", "--version", default="1.0.0", callback=parameters.version, help="Version of the environment.")
@click.option(
    "-t", "--template", type=click.Choice(scaffold.TEMPLATES), default="default", help="Template to start from."
)
@click.option(
    "-w",
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    help="Folder in which the project is created.  [default: the current folder]",
)
@click.option(
    "--force", is_flag=True, help="Write into a folder that is not empty. Only files of the template are replaced."
)
@click.option("--config-only", is_flag=True, help="Write only config.json, directly into the work directory.")
def command(name: str, version: str, template: str, work_dir: Path, force: bool, config_only: bool) -> None:
    """Create the project of a new environment from a template.

    \b
    Templates:
      default    a tool, a function and a reward, with explaining comments
      agent      an agent to chat with, by a rule or with a model
      benchmark  tasks in a file, a seeded reset, a graded reward
      browser    Chromium as tools, and a page with tasks to use it on
      web-app    a web page that shows every change of its files at once
      gym        a world in the manner of Gymnasium, and a program that plays it
      fastmcp    a FastMCP server, served as it is
      service    a long-running service whose state survives a restart
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
            f"'{what}' exists already", hint="pass --force to replace the files of the template, and no others"
        )

    written = scaffold.write(folder, files)
    for path in written:
        output.data(str(path))
    if not config_only:
        output.talk(f"\nNext steps:\n  cd {folder}\n  aenv test\n  aenv run")
