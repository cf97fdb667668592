"""`aenv capture`: an endpoint in front of a model's server, which records what agents say to the model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from ...base import settings
from .. import output
from ..help_pages import DocumentedCommand
from ..output_formats import formats


@click.command(
    "capture",
    cls=DocumentedCommand,
    examples=(
        "aenv capture --upstream http://localhost:8000/v1",
        "aenv capture --upstream https://api.openai.com/v1 --key-env OPENAI_API_KEY",
    ),
)
@click.option(
    "--upstream", metavar="URL", required=True, help="The model's server, as in http://localhost:8000/v1."
)
@click.option("--key-env", metavar="NAME", help="The variable that holds the server's key.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("capture.jsonl"),
    show_default=True,
    help="The journal to write; it must be new.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Where agents ask; port 0 is free.",
)
@click.option(
    "--parameter",
    "parameters",
    metavar="NAME=JSON",
    multiple=True,
    help="Added to chat completions that do not set it, as in logprobs=true (repeatable).",
)
@formats(plain="text", json_help="Print the address and the key as a line of JSON.")
def command(
    upstream: str, key_env: str | None, out: Path, listen: str, parameters: tuple[str, ...], as_json: bool
) -> None:
    """Record what agents say to a model.

    Prints variables for an agent: where it asks, and a key. The key with '-NAME' after it records under the
    rollout NAME. Every exchange is appended to the journal, for 'aenv trajectories'. Ends with Ctrl-C.
    """
    from ...rollouts.capture import named_capture

    if out.exists():
        raise output.Failure(f"'{out}' exists; name another file with --out")
    key = settings.variables().get(key_env) if key_env else None
    if key_env and not key:
        raise output.Failure(f"variable {key_env} is not set, and --key-env names it")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise click.UsageError(f"--listen must be HOST:PORT, and is {listen!r}")

    def tell(variables: dict[str, str]) -> None:
        if as_json:
            output.line(variables)
        else:
            output.data("\n".join(f"export {name}={value}" for name, value in variables.items()))
        output.talk(f"\nrecording in {out}; Ctrl-C ends it")

    where = host.strip("[]"), int(port)
    with suppress(KeyboardInterrupt):  # which is how a server ends
        named_capture.run(upstream, key, out, where, named_capture.parsed(parameters), tell)
