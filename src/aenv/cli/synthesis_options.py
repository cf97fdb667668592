"""What the options of `aenv synth` mean, and what it says at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from ..base.errors import InvalidRequest
from ..client.chat import Chat
from ..rollouts import locations, roster
from ..rollouts.synthesis.mutations import KINDS
from ..rollouts.synthesis.synthesizer import (
    Solver,
    SourceRecipe,
    SynthesisOptions,
    from_model,
    from_mutations,
    from_templates,
    synthesize,
)
from ..rollouts.synthesis.task_sets import TaskSet
from ..rollouts.task import TaskSelection
from ..rollouts.task_instances import InstanceSource


def parts(variables: Mapping[str, str], /, **given: Any) -> tuple[SourceRecipe, Solver | None]:
    """The source, and the agent whose solve rate is measured. InvalidRequest where there is not one source."""
    named = [name for name in ("templates", "mutate") if given[name]]
    if len(named) > 1 or not (named or given["model"]):
        raise InvalidRequest("name one source of tasks: --templates FILE, --mutate KIND or --model NAME")
    solver = None
    if given["agent"]:
        model = given["solver_model"] or given["model"]
        unset = dict.fromkeys(("max_steps", "price_in", "price_out", "max_tokens"))
        agent = roster.agent(given["agent"], variables, **{**given, **unset, "model": model})
        solver = Solver(agent, model if given["agent"] == "llm" else None)
    return _recipe(variables, **given), solver


def _recipe(variables: Mapping[str, str], /, **given: Any) -> SourceRecipe:
    if given["templates"]:
        return from_templates(given["templates"])
    if given["mutate"]:
        kinds = [kind.strip() for kind in given["mutate"].split(",") if kind.strip()]
        return from_mutations(*(KINDS if kinds == ["all"] else kinds))
    if not given["base_url"]:
        raise InvalidRequest("a model that writes tasks needs --base-url")
    chat = Chat(given["base_url"], variables.get(given["api_key_env"]))
    return from_model(chat, given["model"], given["temperature"])


def made(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    recipe: SourceRecipe,
    solver: Solver | None,
    options: SynthesisOptions,
    guards: Sequence[AbstractAsyncContextManager[InstanceSource]],
    tell: Callable[[dict[str, Any]], None] | None,
) -> TaskSet:
    """Open the places, and synthesize. KeyboardInterrupt when it was stopped, in order."""

    async def main() -> TaskSet:
        async with AsyncExitStack() as stack:
            place = await stack.enter_async_context(opened)
            guarded = [await stack.enter_async_context(one) for one in guards]
            return await synthesize(place, recipe, options, seeds=wanted, solver=solver, guards=guarded, tell=tell)

    return locations.run(main)


def table(made: TaskSet) -> str:
    """What was kept and what was dropped, for people."""
    rates = [kept.solve_rate for kept in made.tasks if kept.solve_rate is not None]
    lines = [f"{made.origin.environment}: kept {len(made.tasks)} of {made.asked} tasks, {made.draws} proposals"]
    if rates:
        lines.append(f"solve rate of {made.origin.agent}: mean {sum(rates) / len(rates):.2f}")
    if made.guarded:
        lines.append(f"guarded tasks: {made.guarded}")
    for why, count in sorted(made.dropped.items()):
        example = made.examples.get(why)
        lines.append(f"  dropped {count}: {why}" + (f" ({_short(example)})" if example else ""))
    return "\n".join(lines)


def _short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
