"""`aenv eval`: an agent over the tasks of an environment."""

from __future__ import annotations

from typing import Any

import click

from ...base import settings
from .. import connection, output, parameters, task_selection
from ..help_pages import documented
from ..output_formats import formats
from ..parameters import FILE


@documented(
    "eval",
    examples=(
        "aenv eval gsm-tools --agent oracle",
        "aenv eval ./my-env --agent llm --model gpt-4o --concurrency 16",
        "aenv eval my-env --agent my_agents:careful --repeat 4",
        "aenv eval my-env --agent codex --model gpt-5 --base-url http://model:8000/v1",
        "aenv eval show results.jsonl",
    ),
)
@click.argument("env", metavar="ENV|DIR")
@click.option(
    "--agent",
    required=True,
    metavar="AGENT",
    help="Agent that plays: oracle, nop, random, llm, claude-code, codex, openhands, mini-swe-agent, smolagents, "
    "or module:function.",
)
@task_selection.options
@task_selection.without_self_check
@click.option(
    "--repeat", type=parameters.Number(1), help="Number of attempts at each task; prints pass@k as well."
)
@click.option("--seed", type=parameters.SEED, default=0, help="Seed of the random agent.")
@click.option(
    "--max-steps",
    type=parameters.Number(1),
    help="Maximum number of tool calls in an episode.  [default: the limit of the task]",
)
@click.option("--model", metavar="NAME", help="Name of the model that the agent uses.")
@parameters.MODEL_URL
@parameters.MODEL_KEY
@click.option(
    "--capture",
    is_flag=True,
    help="Record the messages between your own agent and the model at --base-url. The agent sends its requests "
    "to env.model.url.",
)
@click.option(
    "--parameter",
    metavar="NAME=JSON",
    multiple=True,
    help="Parameter to add to captured chat completions that do not set it, as in logprobs=true; repeatable.",
)
@click.option("--max-tokens", type=parameters.Number(1), help="Maximum number of tokens in a reply.")
@click.option("--temperature", type=parameters.AMOUNT, metavar="T", help="Sampling temperature of the model.")
@click.option("--price-in", type=parameters.AMOUNT, metavar="PRICE", help="Price of a million input tokens.")
@click.option("--price-out", type=parameters.AMOUNT, metavar="PRICE", help="Price of a million output tokens.")
@click.option(
    "--out", type=FILE, metavar="FILE", help="File for the results.  [default: a new one in $AENV_HOME/evals]"
)
@click.option("--resume", type=FILE, metavar="FILE", help="Continue the evaluation whose results are in FILE.")
@click.option(
    "--retries",
    type=parameters.Number(0),
    default=2,
    help="Maximum number of new instances for an episode whose infrastructure fails.",
)
@formats(plain="text", json_help="Print each result as a line of JSON.")
@connection.options
def command(as_json: bool, **given: Any) -> int:
    """Let an agent play the tasks of an environment.

    ENV is the name of an environment, DIR the folder of a project. Each result is appended to a file as soon as it
    is known, so --resume can continue an interrupted evaluation. 'aenv eval show FILE' prints the results as a
    table and draws a chart.
    """
    from ...rollouts import evaluation, roster, summaries

    selection = task_selection.selected(**given)
    agent = roster.agent(given["agent"], settings.variables(), **given)
    path = roster.default_file(settings.home(), selection.name, agent)
    capture = roster.capture(given["agent"], settings.variables(), **given)
    options = evaluation.options_of(agent, path, capture, **given)
    tell = output.line if as_json else None
    try:
        results, took = evaluation.evaluated(selection.opened, selection.wanted, agent, options, tell)
    except KeyboardInterrupt:
        output.talk(f"interrupted; continue with --resume {options.out}")
        raise
    (output.talk if as_json else output.data)(summaries.table(results, output.width()))
    output.talk(f"{took}; {options.out}")
    return int(summaries.failed(results))
