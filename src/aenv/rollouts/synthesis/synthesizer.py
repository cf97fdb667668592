"""Synthesis: proposals are drawn, checked and compared, batch by batch, until enough tasks are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...base.errors import Conflict, InvalidRequest
from ...client.chat import Chat
from ..episodes import Agent
from ..task import TaskSelection
from ..task_instances import InstanceSource
from . import task_sets, work_log
from .checking import ProposalChecks
from .model_written import ModelSource
from .mutations import MutationSource
from .proposals import BadProposal, GoldCall, Proposal, ProposalSource, structure_of
from .seeds import SeedSet, seed_set
from .similarity import GuardedTexts, KnownTasks
from .task_sets import KeptTask, SetOrigin, TaskSet
from .templates import TemplateSource, template_file
from .work_log import CheckedAttempt, WorkLog

_DRAWS = 20  # for each task that is asked for, until it is given up


@dataclass(frozen=True)
class SynthesisOptions:
    """How many tasks are wanted, and which of those that hold are kept."""

    count: int = 10
    seed: int = 0
    repeat: int = 1
    """Attempts of the agent at each task."""
    min_solve_rate: float = 0.0
    max_solve_rate: float = 1.0
    concurrency: int = 4
    version: str = "1.0.0"
    force: bool = False
    """Whether an environment that is for evaluation alone may be the source."""
    out: Path | None = None


@dataclass(frozen=True)
class SourceRecipe:
    """How a source is made once the seeds are known."""

    name: str
    make: Callable[[SeedSet, int, WorkLog], ProposalSource]
    model: str | None = None
    close: Callable[[], Any] | None = None


def from_templates(path: str | Path) -> SourceRecipe:
    """Tasks of a file of templates, which is read at once."""
    templates = template_file(path)
    return SourceRecipe("template", lambda seeds, seed, log: TemplateSource(templates, seeds.form, seed))


def from_mutations(*kinds: str) -> SourceRecipe:
    """Tasks like the seeds, with other "numbers", other "names", or their numbers in another "order"."""
    return SourceRecipe("mutation", lambda seeds, seed, log: MutationSource(seeds, kinds, seed))


def from_model(chat: Chat, model: str, temperature: float | None = None) -> SourceRecipe:
    """Tasks that a model writes. The chat is closed at the end."""
    return SourceRecipe(
        "model",
        lambda seeds, seed, log: ModelSource(chat, model, seeds, seed, log, temperature),
        model,
        chat.close,
    )


@dataclass(frozen=True)
class Solver:
    """An agent whose solve rate is measured, and the model that it asks, if any."""

    agent: Agent
    model: str | None = None


async def synthesize(
    place: InstanceSource,
    recipe: SourceRecipe,
    options: SynthesisOptions,
    *,
    seeds: TaskSelection | None = None,
    solver: Solver | None = None,
    guards: Sequence[InstanceSource] = (),
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> TaskSet:
    """A set of new tasks for the environment of `place`, written to `options.out` where that is given.

    `seeds` are its own tasks unless others are named. Tasks near to one of an environment of `guards` are dropped.
    What was done is kept beside the file until it is whole, and the same call goes on there.
    """
    try:
        if options.out and options.out.exists():
            raise Conflict(f"'{options.out}' is there already; name another file with --out, or remove it")
        known = await seed_set(place, seeds or TaskSelection(), options.concurrency, force=options.force)
        texts: list[str] = []
        for guard in guards:
            found = await seed_set(guard, TaskSelection(), options.concurrency, sealed=False)
            texts += [one.text for one in found.tasks]
        guarded = GuardedTexts(texts)
        if guards and not guarded:
            raise InvalidRequest(
                "the guarded environments list no tasks; a guard needs 'list_tasks' and 'get_task'"
            )
        # A source is described before there is a log for it, since what it is decides which log it goes on with.
        described = recipe.make(known, options.seed, WorkLog()).described()
        origin = _origin(known, recipe, options, solver, described, texts)
        path = options.out.with_name(f"{options.out.name}.work") if options.out else None
        with work_log.opened(path, origin.inputs) as log:
            checks = ProposalChecks(place, log, options.concurrency, options.seed)
            source = recipe.make(known, options.seed, log)
            run = _Synthesis(known, source, checks, options, solver, guarded, TaskSet(origin, options.count))
            made = await run.run(tell or (lambda record: None))
            if options.out and path:
                made.save(options.out)
                path.unlink()
        return made
    finally:
        if recipe.close:
            await recipe.close()
        if solver:
            await solver.agent.close()


def _origin(
    known: SeedSet,
    recipe: SourceRecipe,
    options: SynthesisOptions,
    solver: Solver | None,
    described: dict[str, Any],
    guarded: Sequence[str],
) -> SetOrigin:
    parts = {
        "environment": [known.environment, known.digest],
        "source": [recipe.name, recipe.model, described],
        "seeds": [one.content for one in known.tasks],
        "guarded": sorted(guarded),
        "solver": [solver.agent.name, solver.model, options.repeat] if solver else None,
        "rates": [options.min_solve_rate, options.max_solve_rate],
        "wanted": [options.count, options.seed, options.version, task_sets.GENERATOR],
    }
    return SetOrigin(
        known.environment,
        known.digest,
        recipe.name,
        recipe.model,
        solver.agent.name if solver else None,
        solver.model if solver else None,
        options.seed,
        options.version,
        known.eval_only,
        task_sets.inputs_of(parts),
    )


@dataclass
class _Synthesis:
    """One run. What is kept depends on the order of draws alone, and not on what ends first."""

    seeds: SeedSet
    source: ProposalSource
    checks: ProposalChecks
    options: SynthesisOptions
    solver: Solver | None
    guarded: GuardedTexts
    made: TaskSet
    known: KnownTasks = field(default_factory=KnownTasks)

    def __post_init__(self) -> None:
        self.made.guarded = len(self.guarded)
        for one in self.seeds.tasks:
            self.known.add(structure_of(one.content), one.text)

    async def run(self, tell: Callable[[dict[str, Any]], None]) -> TaskSet:
        drawn = self.source.proposals()
        while not self.made.is_complete:
            batch, is_over = await self._batch(drawn)
            for kept in await self._kept(await self._fresh(batch)):
                if not self.made.is_complete:
                    self.made.tasks.append(kept)
                    tell(self.made.record(kept))
            if is_over:
                break
        return self.made

    async def _batch(self, drawn: AsyncIterator[Proposal | BadProposal]) -> tuple[list[Proposal], bool]:
        """As many proposals as are still needed, none of them known; and whether there will be no more."""
        wanted = self.options.count - len(self.made.tasks)
        batch: list[Proposal] = []
        while len(batch) < wanted:
            one = await anext(drawn, None) if self.made.draws < _DRAWS * self.options.count else None
            if one is None:
                return batch, True
            self.made.draws += 1
            if isinstance(one, BadProposal):
                self.made.drop("not a task", one.reason)
            elif self.known.has_structure(one.structure):
                self.made.drop("duplicate")
            else:
                self.known.add(one.structure)
                batch.append(one)
        return batch, False

    async def _fresh(self, batch: Sequence[Proposal]) -> list[tuple[Proposal, str]]:
        """Those that nothing like them is known of, and that are not rewarded for nothing; with their texts."""
        found: list[tuple[Proposal, str]] = []
        empty = await self.checks.empty(batch)
        for one in batch:
            ended = empty[one.task.id]
            text = ended.text
            if ended.passed is None:
                self.made.drop("refused by the environment", ended.reason)
            elif text and self.known.has_text(text):
                self.made.drop("duplicate")
            elif self.guarded.is_near(text):
                self.made.drop("near a guarded task")
            elif ended.passed:
                self.made.drop("doing nothing passes", one.task.id)
            else:
                found.append((one, text))
            if text:
                self.known.add(one.structure, text)
        return found

    async def _kept(self, fresh: Sequence[tuple[Proposal, str]]) -> list[KeptTask]:
        """Those whose gold passes, and that the agent solves as often as is wanted."""
        has_oracle = "play_gold" in self.seeds.functions
        own = [one for one, _ in fresh if one.gold or has_oracle]
        if len(own) < len(fresh) and not self.solver:
            raise InvalidRequest(
                f"{self.seeds.environment!r} has no 'play_gold', and the tasks have no reference solution; name "
                "an agent that solves them"
            )
        golds = await self.checks.gold(own)
        held = [(one, text) for one, text in fresh if one.task.id not in golds or self._holds(one, golds)]
        if not self.solver:
            return [KeptTask(one, text, one.gold or _OWN_GOLD) for one, text in held]
        proposals = [one for one, _ in held]
        solved = await self.checks.solved(proposals, self.solver.agent, self.options.repeat)
        kept: list[KeptTask] = []
        for one, text in held:
            attempts = [each for each in solved[one.task.id] if each.passed is not None]
            passed = [each for each in attempts if each.passed]
            rate = round(len(passed) / len(attempts), 4) if attempts else None
            gold = one.gold or (_OWN_GOLD if has_oracle else ())
            if rate is None:
                self.made.drop("the agent was not judged", solved[one.task.id][0].reason)
            elif not gold and not passed:
                self.made.drop("not solved", one.task.id)
            elif not self.options.min_solve_rate <= rate <= self.options.max_solve_rate:
                self.made.drop("solve rate out of bounds", f"{one.task.id}: {rate:g}")
            else:
                gold = gold or tuple(GoldCall.read(call, "gold") for call in passed[0].calls)
                kept.append(KeptTask(one, text, gold, len(attempts), rate))
        return kept

    def _holds(self, one: Proposal, golds: dict[str, CheckedAttempt]) -> bool:
        ended = golds[one.task.id]
        if not ended.passed:
            self.made.drop("gold fails", ended.reason or f"{one.task.id}: the reward is not full")
        return bool(ended.passed)


_OWN_GOLD = (GoldCall("function", "play_gold"),)
