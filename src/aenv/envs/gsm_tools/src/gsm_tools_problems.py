"""Word problems from a seed: the same text, steps and answer for the same difficulty and seed, everywhere.

A problem is either a story, in which one quantity changes from event to event, or one of the puzzles of
`gsm_tools_puzzles.py`. Not here: reading variables, tools, rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gsm_tools_arithmetic import evaluate
from gsm_tools_draws import Draws
from gsm_tools_puzzles import PUZZLES
from gsm_tools_stories import FRACTIONS, NAMES, STORIES, Story

LEVELS = (1, 2, 3, 4, 5)
MAX_SEED = 10**12
# The kinds of events that a level allows; a story of level n has n of them.
_EVENTS = {
    1: ("gain", "lose"),
    2: ("gain", "lose", "grow", "share"),
    3: ("gain", "lose", "grow", "share", "part"),
    4: ("gain", "lose", "grow", "share", "part", "percent"),
    5: ("gain", "lose", "grow", "share", "part", "percent", "raise"),
}


@dataclass(frozen=True)
class Problem:
    """A problem with the calculations that solve it; the value of the last one is the answer."""

    difficulty: int
    seed: int
    text: str
    steps: tuple[str, ...]
    name: str = ""
    """Of a problem that was not made from its seed."""

    @property
    def id(self) -> str:
        return self.name or f"{self.difficulty}-{self.seed}"

    @property
    def answer(self) -> Fraction:
        return evaluate(self.steps[-1])


def problem(difficulty: int, seed: int) -> Problem:
    """The problem of a difficulty and a seed."""
    draws = Draws(f"gsm-tools 1 {difficulty} {seed}")
    kinds: list[Callable[[Draws, int], tuple[str, Sequence[str]]]] = [_story, _story, *PUZZLES[difficulty]]
    text, steps = draws.pick(kinds)(draws, difficulty)
    return Problem(difficulty, seed, text, tuple(steps))


def _story(draws: Draws, difficulty: int) -> tuple[str, Sequence[str]]:
    tale = _Tale(draws, draws.pick(STORIES), draws.pick(NAMES))
    tale.begin(difficulty)
    before = ""
    for _ in range(difficulty):
        # Not the same kind twice running, where there are others.
        kinds = [kind for kind in _EVENTS[difficulty] if kind != before or difficulty == 1]
        before = tale.happen(draws.pick(kinds))
    tale.say(tale.story["question"])
    return " ".join(tale.sentences), tale.steps


class _Tale:
    """A story while it is told: what was said, how it is worked out, and the quantity now."""

    def __init__(self, draws: Draws, story: Story, name: str) -> None:
        self.draws = draws
        self.story = story
        self.name = name
        self.sentences: list[str] = []
        self.steps: list[str] = []
        self.value = 0

    def begin(self, difficulty: int) -> None:
        # Multiples of 12 have parts; small numbers are for those who begin.
        self.value = 12 * self.draws.between(1, 4) if difficulty < 3 else 60 * self.draws.between(1, 8)
        self.say(self.draws.pick(self.story["opening"]), n=self.value)

    def say(self, sentence: str, **numbers: object) -> None:
        self.sentences.append(sentence.format(name=self.name, **numbers))

    def happen(self, kind: str) -> str:
        """One event, of this kind where the quantity allows it; the kind that it was."""
        tell = {
            "lose": self._lose,
            "grow": self._grow,
            "share": self._share,
            "part": self._part,
            "percent": self._percent,
            "raise": self._raise,
        }.get(kind)
        if tell and tell():
            return kind
        number = self.draws.between(3, 40)
        self._become(f"{self.value} + {number}", self.draws.pick(self.story["gain"]), n=number)
        return "gain"

    def _become(self, step: str, sentence: str, **numbers: object) -> bool:
        self.say(sentence, **numbers)
        self.steps.append(step)
        self.value = int(evaluate(step))
        return True

    def _lose(self) -> bool:
        if self.value < 6:
            return False
        number = self.draws.between(2, self.value * 2 // 3)
        return self._become(f"{self.value} - {number}", self.draws.pick(self.story["lose"]), n=number)

    def _grow(self) -> bool:
        if self.value > 2000:
            return False
        number = self.draws.between(2, 5)
        return self._become(f"{self.value} * {number}", self.draws.pick(self.story["grow"]), n=number)

    def _share(self) -> bool:
        divisors = [n for n in range(2, 9) if self.value % n == 0 and self.value // n >= 2]
        if not divisors:
            return False
        number = self.draws.pick(divisors)
        return self._become(f"{self.value} / {number}", self.draws.pick(self.story["share"]), n=number)

    def _part(self) -> bool:
        fitting = [part for part in FRACTIONS if self.value % part[1] == 0 and self.value >= 2 * part[1]]
        if not fitting:
            return False
        over, under, words = self.draws.pick(fitting)
        step = f"{self.value} - {self.value} * {over} / {under}"
        return self._become(step, self.draws.pick(self.story["part"]), part=words)

    def _percent(self) -> bool:
        fitting = [n for n in (5, 10, 15, 20, 25, 30, 40, 60, 75) if self.value * n % 100 == 0 and self.value]
        if not fitting:
            return False
        number = self.draws.pick(fitting)
        step = f"{self.value} - {self.value} * {number} / 100"
        return self._become(step, self.draws.pick(self.story["percent"]), n=number)

    def _raise(self) -> bool:
        fitting = [n for n in (5, 10, 20, 25, 50, 150) if self.value * n % 100 == 0 and self.value]
        if not fitting:
            return False
        number = self.draws.pick(fitting)
        step = f"{self.value} + {self.value} * {number} / 100"
        return self._become(step, self.draws.pick(self.story["rise"]), n=number)
