"""`aenv list`: the environments that the hub knows, or those that come with this package."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..data.builtin import built_in
from . import output, parameters


@click.command("list")
@click.argument("text", required=False, default="")
@click.option("--name", default="", help="Only the versions of the environment of this name.")
@click.option("--tags", multiple=True, metavar="TAG", help="Only what has this tag; several, or tags with commas.")
@click.option(
    "-l", "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many to print."
)
@click.option(
    "-o", "--offset", type=click.IntRange(0), default=0, show_default=True, help="How many to leave out first."
)
@click.option("--builtin", is_flag=True, help="Those that come with aenv, and start without being pushed.")
@parameters.formats
def command(
    text: str, name: str, tags: tuple[str, ...], limit: int, offset: int, builtin: bool, as_json: bool
) -> None:
    """List environments; with TEXT, those whose name, description or tags contain it."""
    wanted = [tag.strip() for part in tags for tag in part.split(",") if tag.strip()]
    if builtin:
        _print_built_in(text.lower().split(), name, wanted, slice(offset, offset + limit), as_json)
        return
    from .platform import ask_hub

    found, total = ask_hub(lambda hub: hub.list(limit=limit, offset=offset, q=text, name=name, tags=wanted))
    if as_json:
        output.json(found)
    elif found:
        output.table(
            ("Name", "Version", "Status", "Description", "Created"),
            [
                (
                    env["name"],
                    env["version"],
                    output.status(env),
                    output.first_line(env.get("description")),
                    output.minute(env.get("created_at")),
                )
                for env in found
            ],
        )
    shown = offset + len(found)
    if not found and not as_json:
        output.talk("no environments" if not total else f"nothing beyond {total}")
    elif shown < total:
        output.talk(f"{len(found)} of {total}; --offset {shown} prints the next")


def _print_built_in(words: Sequence[str], name: str, tags: Sequence[str], page: slice, as_json: bool) -> None:
    found = [
        project
        for versions in built_in().values()
        for project in versions.values()
        if project.ref not in project.aliases and (not name or project.name == name) and {*tags} <= {*project.tags}
        if all(word in " ".join((project.name, project.description, *project.tags)).lower() for word in words)
    ]
    rows = [(each.name, each.version, list(map(str, each.aliases)), each.description) for each in found[page]]
    if as_json:
        output.json([dict(zip(("name", "version", "aliases", "description"), row, strict=True)) for row in rows])
    else:
        lines = [(name, version, ", ".join(also), output.first_line(about)) for name, version, also, about in rows]
        output.table(("Name", "Version", "Aliases", "Description"), lines)
