"""`aenv eval`: an agent over the tasks of an environment."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base import settings
from .. import connection, output, parameters, project
from ..formats import formats

if TYPE_CHECKING:
    from ...rollouts.instances import Place
    from ...rollouts.task import Wanted

_FILE = click.Path(path_type=Path, dir_okay=False)
_SELECTION = (
    click.option("--tasks", multiple=True, metavar="ID,…|FILE", help="These tasks; a file has one id a line."),
    click.option("--split", default="", metavar="NAME", help="The tasks of this split."),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N tasks."),
    click.option(
        "--variable", multiple=True, callback=parameters.pairs, metavar="NAME=VALUE", help="Of instances."
    ),
    parameters.SECRETS,
    click.option("--concurrency", type=click.IntRange(1, 1000), default=4, show_default=True, help="At a time."),
    click.option(
        "--timeout", default="30m", callback=parameters.seconds, show_default=True, help="Of an episode."
    ),
)


without_check = click.option(
    "--no-self-check", is_flag=True, help="Do not wait for the self-check of tasks; results say so."
)


def selection(command: Any) -> Any:
    """Adds the options that say which tasks are played, and how."""
    for option in reversed(_SELECTION):
        command = option(command)
    return command


@dataclass(frozen=True)
class Asked:
    """What the options of `selection` mean."""

    name: str
    opened: AbstractAsyncContextManager[Place]
    """Where instances are made, once it is entered."""
    wanted: Wanted
    concurrency: int


def asked(env: str, gateway: connection.Gateway, **given: Any) -> Asked:
    """What is asked for, of the environment that is called so, or of the project in that folder."""
    from ...rollouts import places
    from ...rollouts.instances import Place
    from ...rollouts.task import Wanted
    from ..own_gateway import served

    is_folder = "/" in env or env in (".", "..") or Path(env, "config.json").is_file()
    found = project.load(Path(env)) if is_folder else None
    name = str(found.ref if found else env)
    place = Place(name, gateway.url, gateway.api_key, {**given["variable"], **given["secrets"]}, given["timeout"])
    place = replace(place, self_check=not given.get("no_self_check"))
    opened = served(place, found) if found else places.known(place)
    return Asked(name, opened, Wanted(given["tasks"], given["split"], given["limit"]), given["concurrency"])


@click.command("eval")
@click.argument("env", metavar="ENV|DIR")
@click.option("--agent", required=True, metavar="AGENT", help="oracle, nop, random, llm, or module:function.")
@selection
@without_check
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="Play each task N times, and print pass@k.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random agent; results carry it.")
@click.option(
    "--max-steps", type=click.IntRange(1), metavar="N", help="Calls in an episode.  [default: the task's]"
)
@click.option("--model", metavar="NAME", help="The model that llm asks.")
@click.option(
    "--base-url", envvar="OPENAI_BASE_URL", metavar="URL", help="Its server.  [default: $OPENAI_BASE_URL]"
)
@click.option("--api-key-env", default="OPENAI_API_KEY", show_default=True, metavar="NAME", help="Has its key.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Tokens the model writes in a reply.")
@click.option("--temperature", type=float, metavar="T", help="How freely the model chooses.")
@click.option("--price-in", type=float, metavar="PRICE", help="Of a million tokens that the model reads.")
@click.option("--price-out", type=float, metavar="PRICE", help="Of a million tokens that the model writes.")
@click.option("--out", type=_FILE, metavar="FILE", help="Where results go.  [default: in $AENV_HOME/evals]")
@click.option("--resume", type=_FILE, metavar="FILE", help="Go on with the results in this file.")
@click.option("--trajectories", type=_FILE, metavar="FILE", help="Append each episode as a chat.")
@click.option("--force-export", is_flag=True, help="Write trajectories of environments that are evalOnly, too.")
@formats(plain="text", json_help="Print each result as a line of JSON.")
@connection.options
def command(as_json: bool, **given: Any) -> int:
    """Let an agent play the tasks of an environment, by its name or in a folder, and say how often it passes.

    Results are appended to a file as they come, so that --resume goes on where an evaluation was interrupted.
    `aenv eval show FILE` shows them as a table and a picture.
    """
    from ...rollouts import evaluation, roster, summaries

    where = asked(**given)
    agent = roster.agent(given["agent"], settings.variables(), **given)
    path = roster.default_file(settings.home(), where.name, agent)
    options = evaluation.Options.of(agent, path, **given)
    try:
        results, took = evaluation.evaluated(
            where.opened, where.wanted, where.concurrency, agent, options, output.line if as_json else None
        )
    except KeyboardInterrupt:
        output.talk(f"interrupted; go on with --resume {options.out}")
        raise
    (output.talk if as_json else output.data)(summaries.table(results, output.width()))
    output.talk(f"{took}; {options.out}")
    return int(summaries.failed(results))
