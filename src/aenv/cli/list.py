"""`aenv list`: the environments that the hub knows."""

from __future__ import annotations

import click

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
@parameters.formats
def command(text: str, name: str, tags: tuple[str, ...], limit: int, offset: int, as_json: bool) -> None:
    """List environments; with TEXT, those whose name, description or tags contain it."""
    from .platform import ask_hub

    wanted = [tag.strip() for part in tags for tag in part.split(",") if tag.strip()]
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
