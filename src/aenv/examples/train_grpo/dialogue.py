"""Episodes as a policy sees them: a problem, calls of tools with their results, and a reward.

What arena, policies and update share. Not here: tokens of a certain policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class ToolCall:
    """A call that a policy asks for."""

    tool: str
    argument: str

    @property
    def is_final(self) -> bool:
        return self.tool == "submit_answer"

    @property
    def arguments(self) -> dict[str, str]:
        return {"answer" if self.is_final else "expression": self.argument}


@dataclass
class Transcript:
    """The tokens of an episode: what was read, and what the policy itself said with which log-probability."""

    tokens: list[int] = field(default_factory=list)
    said: list[bool] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)

    def read(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens
        self.said += [False] * len(tokens)
        self.log_probabilities += [0.0] * len(tokens)

    def say(self, token: int, log_probability: float) -> None:
        self.tokens.append(token)
        self.said.append(True)
        self.log_probabilities.append(log_probability)


@dataclass
class PlayedEpisode:
    """One task, as it was played. `reward` is None where the platform failed: that says nothing of the policy."""

    task: str
    transcript: Transcript
    reward: float | None = None
    calls: int = 0


class Talk(Protocol):
    """A policy in several episodes at the same time, one a row."""

    transcripts: list[Transcript]

    def speak(self, rows: Sequence[int]) -> dict[int, ToolCall | None]:
        """What the policy does next in each of these rows; None where it asks for no tool."""
        ...

    def hear(self, row: int, result: str, is_error: bool) -> None:
        """What the tool has answered."""
        ...


class Policy(Protocol):
    """A model that can be asked and trained."""

    name: str

    @property
    def module(self) -> Any:
        """The `torch.nn.Module` whose parameters are trained."""
        ...

    def open(self, problems: Sequence[str]) -> Talk: ...

    def logits(self, tokens: Any) -> Any:
        """Logits for the token after each of `tokens`: rows by positions by tokens that can be said."""
        ...

    def demonstrate(self, problem: str, draw: Any) -> Transcript:
        """Calls that are well formed and otherwise drawn at random (`draw` is a `random.Random`)."""
        ...
