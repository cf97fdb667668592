"""`aenv list`: the environments in the hub, and those that come with aenv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ...artifacts.data.builtin import built_in
from .. import output, parameters
from ..help_pages import documented
from ..output_formats import PUBLISHED, formats

if TYPE_CHECKING:
    from ...client.hub_records import HubVersion


@documented("list", examples=("aenv list", "aenv list terminal", "aenv list --tags demo --json"))
@click.argument("text", required=False, default="")
@click.option("--name", default="", help="List only the versions of this environment.")
@click.option(
    "--tags",
    multiple=True,
    metavar="TAG",
    help="List only environments with this tag; repeatable, or several with commas.",
)
@click.option(
    "-l", "--limit", type=parameters.Number(1, 1000), default=100, help="Maximum number of environments."
)
@click.option("-o", "--offset", type=parameters.Number(0), default=0, help="Number of environments to skip.")
@click.option("--builtin", is_flag=True, help="List only the environments that come with aenv.")
@formats(*PUBLISHED, names=("--output",))
def command(
    text: str, name: str, tags: tuple[str, ...], limit: int, offset: int, builtin: bool, as_json: bool
) -> None:
    """List or search environments.

    TEXT is searched in names, descriptions and tags. The environments in the hub come first, then those that come
    with aenv.
    """
    wanted = [tag.strip() for part in tags for tag in part.split(",") if tag.strip()]
    shipped = _built_in(text.lower().split(), name, wanted)
    found: list[HubVersion] = []
    of_hub = 0
    if not builtin:
        from ..connection import ask_hub

        found, of_hub = ask_hub(lambda hub: hub.list(limit=limit, offset=offset, q=text, name=name, tags=wanted))
    # A page goes on with what comes with aenv where the hub's part of the list ends.
    first = max(0, offset - of_hub)
    total = of_hub + len(shipped)
    found = [*found, *shipped[first : first + limit - len(found)]]
    if as_json:
        output.json([each.sent for each in found])
    elif found:
        output.table(("Name", "Version", "Status", "Description", "Created"), list(map(_row, found)))
    shown = offset + len(found)
    if not found and not as_json:
        output.talk("no environments" if not total else f"there are only {total} environments")
    elif shown < total:
        output.talk(f"{len(found)} of {total}; use --offset {shown} for the next ones")


def _row(env: HubVersion) -> tuple[str, ...]:
    also = f" (also {', '.join(env.aliases)})" if env.aliases else ""
    return (
        env.name,
        env.version,
        "Built-in" if env.builtin else output.status(env.status),
        output.first_line(env.description) + also,
        output.minute(env.created_at),
    )


def _built_in(words: Sequence[str], name: str, tags: Sequence[str]) -> list[HubVersion]:
    from ...client.hub_records import HubVersion

    return [
        HubVersion.of(
            {
                "name": project.name,
                "version": project.version,
                "aliases": list(map(str, project.aliases)),
                "description": project.description,
                "tags": list(project.tags),
                "builtin": True,
            }
        )
        for versions in built_in().values()
        for project in versions.values()
        if project.ref not in project.aliases and (not name or project.name == name) and {*tags} <= {*project.tags}
        if all(word in " ".join((project.name, project.description, *project.tags)).lower() for word in words)
    ]
