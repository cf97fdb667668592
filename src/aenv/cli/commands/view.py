"""`aenv view`: results, trajectories and the platform in a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base import settings
from .. import connection, output, parameters
from ..connection import Gateway
from ..help_pages import documented

if TYPE_CHECKING:
    from ...base.addresses import Origin

_SHOWN = 100  # of the evaluations in the home folder, the newest


@documented("view", examples=("aenv view results.jsonl", "aenv view before.jsonl after.jsonl", "aenv view --open"))
@click.argument(
    "files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]..."
)
@click.option("--port", type=parameters.PORT, default=0, help="Port to listen on; 0 picks a free port.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@connection.options
def command(gateway: Gateway, files: tuple[Path, ...], port: int, opens: bool) -> None:
    """Show results and trajectories in a browser, or your platform.

    Prints the address of a page on this machine, which opens once. With files, it shows these; without, the
    environments and instances of your gateway or platform, and your last evaluations. Ends with Ctrl-C.
    """
    from ...web import view_server

    def tell(url: str) -> None:
        output.data(url)
        if opens:
            click.launch(url)
        output.talk("Ctrl-C ends it")

    async def show(origin: Origin | None) -> None:
        shown = files or _evaluations()
        opened = view_server.viewing(
            shown, port=port, platform=origin, api_key=gateway.api_key if origin else None
        )
        await view_server.serve(opened, tell)

    if files:
        asyncio.run(show(None))
    else:
        gateway.run_at(show)


def _evaluations() -> list[Path]:
    folder = settings.client_settings().home.expanduser() / "evals"
    found = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    return found[:_SHOWN]
