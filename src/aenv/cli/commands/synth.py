"""`aenv synth`: new tasks for an environment, checked before they are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ...base import settings
from .. import connection, output, parameters, task_selection
from ..help_pages import documented
from ..output_formats import formats
from ..parameters import FILE


@documented(
    "synth",
    examples=(
        "aenv synth gsm-tools --mutate numbers --count 50 --out tasks.jsonl",
        "aenv synth gsm-tools --templates templates.jsonl --agent llm --out tasks.jsonl",
        "aenv synth ./my-env --model gpt-4o --guard swebench --out tasks.jsonl",
    ),
)
@click.argument("env", metavar="ENV|DIR")
@click.option("--templates", type=FILE, metavar="FILE", help="Make tasks from the templates in FILE.")
@click.option(
    "--mutate",
    metavar="KIND,…",
    help="Make tasks by changing existing ones: numbers, names, order, or all.",
)
@click.option("--model", metavar="NAME", help="Model that writes tasks, and that the llm agent uses.")
@click.option("--count", type=parameters.Number(1, 100_000), default=10, help="Number of tasks to keep.")
@click.option("--seed", type=parameters.SEED, default=0, help="Seed of all random choices.")
@click.option("--out", type=FILE, metavar="FILE", required=True, help="New file for the task set.")
@click.option("--set-version", default="1.0.0", metavar="VERSION", help="Version of the task set.")
@click.option(
    "--guard",
    multiple=True,
    metavar="ENV|DIR",
    help="Drop tasks that are similar to a task of this environment; repeatable.",
)
@click.option("--force", is_flag=True, help="Make tasks from an environment that is marked evalOnly.")
@click.option(
    "--agent",
    metavar="AGENT",
    help="Agent whose solve rate is measured: random, llm, nop, oracle, or module:function.",
)
@click.option(
    "--repeat", type=parameters.Number(1), default=1, help="Number of attempts of the agent at each task."
)
@click.option(
    "--min-solve-rate", type=parameters.RATE, default=0.0, help="Lowest solve rate of a task to keep, from 0 to 1."
)
@click.option(
    "--max-solve-rate",
    type=parameters.RATE,
    default=1.0,
    help="Highest solve rate of a task to keep, from 0 to 1.",
)
@click.option(
    "--solver-model", metavar="NAME", help="Model that the llm agent uses.  [default: the one of --model]"
)
@parameters.MODEL_URL
@parameters.MODEL_KEY
@click.option("--temperature", type=parameters.AMOUNT, metavar="T", help="Sampling temperature of the model.")
@task_selection.options
@task_selection.without_self_check
@formats(plain="text", json_help="Print each task that is kept as a line of JSON.")
@connection.options
def command(
    env: str,
    chosen: task_selection.ChosenTasks,
    no_self_check: bool,
    as_json: bool,
    gateway: connection.Gateway,
    **given: Any,
) -> int:
    """Make new tasks for an environment.

    ENV is the name of an environment, DIR the folder of a project. Its own tasks, or those that --tasks names, are
    the seeds. Name one source: --templates, --mutate or --model. A task is kept when its reference solution gets
    the full reward, doing nothing does not, and no known task is the same. The same command continues an
    interrupted one. The exit code is 1 when fewer tasks than --count were kept.
    """
    from ...rollouts import roster, synthesis
    from .. import synthesis_options

    if given["min_solve_rate"] > given["max_solve_rate"]:
        raise click.UsageError("--min-solve-rate is higher than --max-solve-rate")
    selection = task_selection.selected(env, gateway, chosen, self_check=not no_self_check)
    key = settings.variables().get(given["api_key_env"])
    recipe = synthesis_options.recipe(
        synthesis_options.SourceOptions(
            given["templates"], given["mutate"], given["model"], given["base_url"], key, given["temperature"]
        )
    )
    told = roster.AgentOptions(
        seed=given["seed"],
        model=given["solver_model"] or given["model"],
        base_url=given["base_url"],
        api_key=key,
        temperature=given["temperature"],
    )
    solver = synthesis_options.solver(given["agent"], told) if given["agent"] else None
    options = synthesis.SynthesisOptions(
        given["count"],
        given["seed"],
        given["repeat"],
        given["min_solve_rate"],
        given["max_solve_rate"],
        chosen.concurrency,
        version=given["set_version"],
        force=given["force"],
        out=given["out"],
    )
    tell = output.line if as_json else None
    guards = [
        task_selection.selected(name, gateway, replace(chosen, tasks=()), self_check=not no_self_check).opened
        for name in given["guard"]
    ]
    try:
        made = synthesis_options.made(selection.opened, selection.wanted, recipe, solver, options, guards, tell)
    except KeyboardInterrupt:
        output.talk("interrupted; the same command continues")
        raise
    (output.talk if as_json else output.data)(synthesis_options.table(made))
    output.talk(f"{given['out']}")
    return 0 if made.is_complete else 1
