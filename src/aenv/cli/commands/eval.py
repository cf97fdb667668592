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
def command(
    env: str,
    chosen: task_selection.ChosenTasks,
    no_self_check: bool,
    as_json: bool,
    gateway: connection.Gateway,
    **given: Any,
) -> int:
    """Let an agent play the tasks of an environment.

    ENV is the name of an environment, DIR the folder of a project. Each result is appended to a file as soon as it
    is known, so --resume can continue an interrupted evaluation. 'aenv eval show FILE' prints the results as a
    table and draws a chart.
    """
    from ...rollouts import evaluation, roster, summaries
    from ...rollouts.runner import RunnerOptions

    selection = task_selection.selected(env, gateway, chosen, self_check=not no_self_check)
    told = roster.AgentOptions(
        seed=given["seed"],
        max_steps=given["max_steps"],
        model=given["model"],
        base_url=given["base_url"],
        api_key=settings.variables().get(given["api_key_env"]),
        temperature=given["temperature"],
        max_tokens=given["max_tokens"],
        price_in=given["price_in"],
        price_out=given["price_out"],
        captures=given["capture"],
        parameters=given["parameter"],
    )
    agent = roster.agent(given["agent"], told)
    capture = roster.capture(given["agent"], told)
    options = RunnerOptions(
        seed=told.seed,
        model=told.model if agent.name == "llm" or capture else None,
        out=given["resume"] or given["out"] or roster.default_file(settings.home(), selection.name, agent),
        mode="resume" if given["resume"] else "new",
        repeat=given["repeat"],
        retries=given["retries"],
        concurrency=chosen.concurrency,
        capture=capture,
    )
    tell = output.line if as_json else None
    try:
        results, took = evaluation.evaluated(selection.opened, selection.wanted, agent, options, tell)
    except KeyboardInterrupt:
        output.talk(f"interrupted; continue with --resume {options.out}")
        raise
    (output.talk if as_json else output.data)(summaries.table(results, output.width()))
    output.talk(f"{took}; {options.out}")
    return int(summaries.failed(results))
