"""What the options of `aenv synth` mean, and what it says at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class SourceOptions:
    """Of what tasks are made: one of the first three. The rest is for the model."""

    templates: Path | None
    mutate: str | None
    model: str | None
    base_url: str | None
    api_key: str | None
    temperature: float | None


def solver(agent: str, options: roster.AgentOptions) -> Solver:
    """The agent whose solve rate is measured."""
    return Solver(roster.agent(agent, options), options.model if agent == "llm" else None)


def recipe(options: SourceOptions) -> SourceRecipe:
    """The source. InvalidRequest where there is not one."""
    named = [one for one in (options.templates, options.mutate) if one]
    if len(named) > 1 or not (named or options.model):
        raise InvalidRequest("name one source of tasks: --templates FILE, --mutate KIND or --model NAME")
    if options.templates:
        return from_templates(options.templates)
    if options.mutate:
        kinds = [kind.strip() for kind in options.mutate.split(",") if kind.strip()]
        return from_mutations(*(KINDS if kinds == ["all"] else kinds))
    if not options.base_url:
        raise InvalidRequest("a model that writes tasks needs --base-url")
    return from_model(Chat(options.base_url, options.api_key), str(options.model), options.temperature)


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
