"""Mutations: tasks with other numbers, other names, or their numbers in another order. Seeded.

Every occurrence of a number or a name is replaced by the same other one, in the text and in the variables. Where
the environment's form has calculations, a number is only changed where it is clear which part of them it is, and
every value on the way stays whole and keeps its sign, so that no story shares out 7 apples among 3.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

from ...base import expressions
from ...base.errors import InvalidRequest, NotFound
from ...base.expressions import BadExpression
from .proposals import BadProposal, Proposal, TaskForm, of_form, of_variables
from .seeds import SeedSet, SeedTask

KINDS = ("numbers", "names", "order")
_NUMBER = re.compile(r"(?<![\w.,])\d+(?:\.\d+)?(?!\w|[.,]\d)")
_WORD = re.compile(r"\b[A-Z][a-z]+\b")
_TRIES = 30  # until the values on the way are as they were
NAMES = (
    *("Ada", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Luca"),
    *("Mina", "Nils", "Odile", "Pavel", "Quentin", "Rosa", "Samir", "Tara", "Uma", "Viktor", "Wanda", "Yusuf"),
    *("Alice", "Bob", "Carol", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "James", "Karen", "Liam"),
    *(
        "Maria",
        "Noah",
        "Olivia",
        "Peter",
        "Rachel",
        "Sarah",
        "Thomas",
        "Ursula",
        "Victor",
        "William",
        "Xena",
        "Zoe",
    ),
)

TaskChange = Callable[[str], str]


class MutationSource:
    """Changes seeds in turn, by each kind in turn, the same for the same seed."""

    def __init__(self, seeds: SeedSet, kinds: Sequence[str], seed: int) -> None:
        if unknown := next((kind for kind in kinds if kind not in KINDS), None):
            raise InvalidRequest(f"no mutation {unknown!r}; there are {', '.join(KINDS)}")
        if not seeds.tasks:
            raise NotFound(f"{seeds.environment!r} lists no tasks to change; name a task file with --tasks")
        self._tasks = seeds.tasks
        self._form = seeds.form
        self._kinds = list(kinds) or [*KINDS]
        self._seed = seed

    async def proposals(self) -> AsyncIterator[Proposal | BadProposal]:
        draw = 0
        while True:
            parent = self._tasks[draw % len(self._tasks)]
            kind = self._kinds[draw // len(self._tasks) % len(self._kinds)]
            made = mutated(parent, self._form, kind, Random(f"{self._seed}:{draw}"), draw)
            yield made or BadProposal(f"task {parent.task.id!r} has no {kind} that can be changed")
            draw += 1

    def described(self) -> dict[str, Any]:
        return {"kinds": self._kinds}


def mutated(parent: SeedTask, form: TaskForm | None, kind: str, random: Random, draw: int) -> Proposal | None:
    """Another task like `parent`; None where it cannot be changed in this way."""
    if form:
        content = _changed(parent.content, kind, random, form.expressions)
        return of_form(form, content, "mutation", parent.task.id, draw) if content else None
    task = parent.task
    content = _changed({"variables": dict(task.variables), "told": dict(task.told)}, kind, random, "")
    if content is None:
        return None
    made = replace(task, variables=content["variables"], told=content["told"], split="")
    return of_variables(made, "mutation", task.id, draw)


def _changed(content: Mapping[str, Any], kind: str, random: Random, calculations: str) -> dict[str, Any] | None:
    steps = [str(step) for step in content.get(calculations) or ()] if calculations else []
    texts = {name: value for name, value in content.items() if not steps or name != calculations}
    if kind == "names":
        change = _other_names(_texts(texts), random)
        return {**_apply(texts, change), **({calculations: steps} if steps else {})} if change else None
    if not steps:
        known = list(dict.fromkeys(token for text in _texts(texts) for token in _NUMBER.findall(text)))
        numbers = _other_numbers(known, kind, random)
        return _apply(texts, _substitution(numbers)) if numbers else None
    return _recalculated(texts, steps, calculations, kind, random)


def _recalculated(
    texts: Mapping[str, Any], steps: list[str], calculations: str, kind: str, random: Random
) -> dict[str, Any] | None:
    try:
        values = [expressions.number(step) for step in steps]
    except BadExpression:
        return None
    told = Counter(token for text in _texts(texts) for token in _NUMBER.findall(text))
    leaves: Counter[str] = Counter()
    for index, step in enumerate(steps):
        earlier = {expressions.spelled(value) for value in values[:index]}
        for token in _NUMBER.findall(step):
            if token in earlier and token in told:
                return None  # a number of the text, or the value of an earlier step: it cannot be told
            leaves[token] += token not in earlier
    free = [token for token, count in told.items() if count == 1 and leaves[token] == 1]
    for _ in range(_TRIES):
        numbers = _other_numbers(free, kind, random)
        found = _worked_out(steps, values, numbers) if numbers else None
        if found:
            return {**_apply(texts, _substitution(numbers)), calculations: found}
    return None


def _worked_out(steps: list[str], before: list[Fraction], numbers: Mapping[str, str]) -> list[str] | None:
    """The steps with other numbers, and with what follows from them; None where a value is of another kind."""
    now: list[Fraction] = []
    written: list[str] = []
    for index, step in enumerate(steps):
        derived = {
            expressions.spelled(old): expressions.spelled(new) for old, new in zip(before, now, strict=False)
        }
        text = _substitution({**numbers, **derived})(step)
        try:
            value = expressions.number(text)
        except BadExpression:
            return None
        if not _is_alike(before[index], value):
            return None
        now.append(value)
        written.append(text)
    return written


def _is_alike(old: Fraction, new: Fraction) -> bool:
    is_sign_kept = (old > 0) == (new > 0) and (old < 0) == (new < 0)
    return is_sign_kept and (new.denominator == 1 or old.denominator != 1) and len(expressions.spelled(new)) < 12


def _other_numbers(known: Sequence[str], kind: str, random: Random) -> dict[str, str]:
    if kind == "order":
        mixed = random.sample(list(known), len(known))
        changed = {old: new for old, new in zip(known, mixed, strict=True) if old != new}
        return changed if len(known) > 1 else {}
    numbers: dict[str, str] = {}
    for token in [one for one in known if random.random() < 0.7] or known:
        whole, _, places = token.partition(".")
        value = int(whole + places)
        low, high = max(1, value // 2), max(value * 2, value + 8)
        drawn = random.randint(low, high - 1)
        drawn += drawn >= value  # each other number as likely
        text = str(drawn).rjust(len(places) + 1, "0")
        numbers[token] = f"{text[: -len(places)]}.{text[-len(places) :]}" if places else text
    return numbers


def _other_names(texts: Sequence[str], random: Random) -> TaskChange | None:
    used = list(dict.fromkeys(word for text in texts for word in _WORD.findall(text) if word in NAMES))
    if not used:
        return None
    free = [name for name in NAMES if name not in used]
    others = dict(zip(used, random.sample(free, len(used)), strict=True)) if len(used) <= len(free) else {}
    return lambda text: _WORD.sub(lambda found: others.get(found[0], found[0]), text)


def _substitution(numbers: Mapping[str, str]) -> TaskChange:
    return lambda text: _NUMBER.sub(lambda found: numbers.get(found[0], found[0]), text)


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def _apply(value: Any, change: TaskChange) -> Any:
    if isinstance(value, Mapping):
        return {name: _apply(one, change) for name, one in value.items()}
    if isinstance(value, list):
        return [_apply(one, change) for one in value]
    return change(value) if isinstance(value, str) else value
