"""`aenv capture`: an endpoint in front of a model's server, which records what agents say to the model."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from .. import output
from ..help_pages import documented
from ..output_formats import formats
from ..parameters import FILE, host_and_port, key_in


@documented(
    "capture",
    examples=(
        "aenv capture --upstream http://localhost:8000/v1",
        "aenv capture --upstream https://api.openai.com/v1 --key-env OPENAI_API_KEY",
    ),
)
@click.option(
    "--upstream",
    metavar="URL",
    required=True,
    help="Address of the model's server, as in http://localhost:8000/v1.",
)
@click.option("--key-env", metavar="NAME", help="Variable that holds the key for the model's server.")
@click.option(
    "--out",
    type=FILE,
    default=Path("capture.jsonl"),
    help="Journal to write. The file must not exist.",
)
@click.option(
    "--listen",
    callback=host_and_port,
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    help="Address to listen on for agents; port 0 picks a free port.",
)
@click.option(
    "--parameter",
    "parameters",
    metavar="NAME=JSON",
    multiple=True,
    help="Parameter to add to chat completions that do not set it, as in logprobs=true; repeatable.",
)
@formats(plain="text", json_help="Print the address and the key as a line of JSON.")
def command(
    upstream: str,
    key_env: str | None,
    out: Path,
    listen: tuple[str, int],
    parameters: tuple[str, ...],
    as_json: bool,
) -> None:
    """Record the messages between agents and a model.

    Prints variables for an agent: the address for its requests, and a key. With '-NAME' added to the key, the
    messages are recorded as the rollout NAME. Every exchange is appended to the journal, which 'aenv trajectories'
    reads. Ends with Ctrl-C.
    """
    from ...rollouts.capture import named_capture

    if out.exists():
        raise output.Failure(f"'{out}' exists; name another file with --out")
    key = key_in(key_env, "--key-env") or None

    def tell(variables: dict[str, str]) -> None:
        if as_json:
            output.line(variables)
        else:
            output.data("\n".join(f"export {name}={value}" for name, value in variables.items()))
        output.talk(f"\nrecording in {out}; Ctrl-C ends it")

    with suppress(KeyboardInterrupt):  # which is how a server ends
        named_capture.run(upstream, key, out, listen, named_capture.parsed(parameters), tell)
