"""`aenv view`: results, trajectories and the platform in a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import settings
from .. import connection, output, parameters
from ..connection import Gateway
from ..help_pages import documented

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from ...base.addresses import Origin

_SHOWN = 100  # of the evaluations in the home folder, the newest


@documented(
    "view",
    examples=(
        "aenv view results.jsonl",
        "aenv view before.jsonl after.jsonl",
        "aenv view --open",
        "aenv view --mini-program --model gpt-4o-mini --open",
    ),
)
@click.argument(
    "files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]..."
)
@click.option("--port", type=parameters.PORT, default=0, help="Port to listen on; 0 picks a free port.")
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option("--mini-program", is_flag=True, help="Open the Mini Program IDE: build a web app by chat.")
@click.option("--project", default="my-app", metavar="NAME", help="Name of the project in the IDE.")
@click.option(
    "--model", metavar="NAME", help="Model that writes the app in the IDE. Without it, a script answers."
)
@parameters.MODEL_URL
@parameters.MODEL_KEY
@connection.options
def command(
    gateway: Gateway, files: tuple[Path, ...], port: int, opens: bool, mini_program: bool, **given: Any
) -> None:
    """Show results and trajectories, or a gateway, in a browser.

    Prints the address of a page on this machine; the address can be opened once. The page shows the files. Without
    files it shows the environments and instances of the gateway or of your own platform, and the last evaluations.
    With --mini-program the page is an IDE, and its project is saved. Ends with Ctrl-C.
    """
    from ...web import view_server
    from ...web.viewed_runs import check_any_is_shown

    def tell(url: str) -> None:
        output.data(url)
        output.talk("Ctrl-C ends it")

    launch = click.launch if opens else None

    if mini_program:
        if files:
            raise output.Failure("--mini-program shows a project and no files; leave out FILE", exit_code=2)
        _build(gateway, port, lambda page: view_server.serve(page, tell, launch), **given)
        return
    if given["model"]:
        raise output.Failure("--model is for the IDE", hint="aenv view --mini-program --model NAME", exit_code=2)

    if files:
        check_any_is_shown(files)

    async def show(origin: Origin | None) -> None:
        shown = files or _evaluations()
        opened = view_server.viewing(
            shown, port=port, platform=origin, api_key=gateway.api_key if origin else None
        )
        await view_server.serve(opened, tell, launch)

    if files:
        asyncio.run(show(None))
    else:
        gateway.run_at(show)


def _build(
    gateway: Gateway,
    port: int,
    serve: Callable[[AbstractAsyncContextManager[str]], Coroutine[Any, Any, None]],
    *,
    project: str,
    model: str | None,
    base_url: str | None,
    api_key_env: str,
) -> None:
    """The Mini Program IDE, until it is ended."""
    from ...web.mini_program.ide_server import ModelChoice, building

    chosen = None
    if model:
        if not base_url:
            raise output.Failure(
                "--model needs the address of its server", hint="pass --base-url URL", exit_code=2
            )
        chosen = ModelChoice(model, base_url, settings.variables().get(api_key_env))
    output.talk("starting an instance of mini-program; the first start installs its packages")
    opened = building(project, chosen, port=port, aenv_url=gateway.url, api_key=gateway.api_key)
    asyncio.run(serve(opened))


def _evaluations() -> list[Path]:
    folder = settings.client_settings().home.expanduser() / "evals"
    found = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    return found[:_SHOWN]
