"""The result of a rollout: how it ended, its reward, and what it took; as an object and as one line of a journal.

Not here: the file that the lines are in (`journal.py`), and the record of the steps (`trajectory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..base.errors import InvalidRequest
from ..base.outcomes import Outcome

if TYPE_CHECKING:
    from .trajectory import Trajectory


@dataclass(frozen=True)
class RunIdentity:
    """What all results of one file share; results of two identities do not belong together."""

    environment: str
    """As the gateway calls it, `name@version`."""
    digest: str | None = None
    agent: str = ""
    model: str | None = None
    seed: int = 0
    eval_only: bool = False
    """Whether the environment says that its rollouts must not become training data."""
    agent_sha256: str = field(default="", compare=False)
    """The digest of the agent's source, where it is known. Journals keep it with the run, not with each result."""

    def differs_from(self, other: RunIdentity) -> tuple[str, Any, Any] | None:
        """The first field in which two runs differ, with both values. `eval_only` may change with the project."""
        for name in ("environment", "digest", "agent", "model", "seed"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return name, mine, theirs
        return None

    def as_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "digest": self.digest,
            "agent": self.agent,
            **({"model": self.model} if self.model else {}),
            "seed": self.seed,
            **({"evalOnly": True} if self.eval_only else {}),
        }

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> RunIdentity:
        return cls(
            str(line.get("environment") or ""),
            line.get("digest"),
            str(line.get("agent") or ""),
            line.get("model"),
            line["seed"] if isinstance(line.get("seed"), int) else 0,
            line.get("evalOnly") is True,
            str(line.get("agent_sha256") or ""),
        )


@dataclass(frozen=True)
class Timings:
    """Seconds of a rollout and of its stages; None for a stage that was not reached."""

    whole: float = 0.0
    start: float | None = None
    agent: float | None = None
    reward: float | None = None


@dataclass(frozen=True)
class TokenCount:
    """Tokens that a model has read and written in a rollout."""

    read: int
    written: int


@dataclass(frozen=True)
class RolloutResult:
    """How one rollout ended. `reward` is a number only where `outcome` is `Outcome.REWARD`."""

    task: str
    outcome: Outcome
    reward: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """The named numbers that the verifier gave beside the reward."""
    passed: bool | None = None
    """Whether the reward is full; None where there is none."""
    reason: str = ""
    """Why there is no reward."""
    attempt: int | None = None
    """Which of the attempts at its task it is, from 1; None where each task is played once."""
    attempts: int = 1
    """How many instances it took: one more for each failure of the infrastructure that was tried again."""
    timings: Timings = field(default_factory=Timings)
    steps: int | None = 0
    """Tool calls; None where the environment has played by itself and does not say how many."""
    tokens: TokenCount | None = None
    cost: float | None = None
    self_check: str = ""
    known: str = ""
    """Why a deviation of the task is known, where `self_check` is "known"."""
    split: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    run: RunIdentity = field(default_factory=lambda: RunIdentity(""))
    rollout: str = ""
    """The id that the lines of this rollout have in the journal; "" in files of the version before."""
    trajectory: Trajectory | None = field(default=None, repr=False, compare=False)
    """The record of its last attempt; None where the file has none."""

    @property
    def is_judged(self) -> bool:
        return self.outcome is Outcome.REWARD

    @property
    def number(self) -> int:
        """Which attempt at its task it is. Results without the field are of a single one."""
        return self.attempt or 1

    @property
    def key(self) -> tuple[str, int]:
        """What the results of one file are known by."""
        return self.task, self.number

    @property
    def seed(self) -> int:
        return self.run.seed

    def as_json(self) -> dict[str, Any]:
        """One line of the journal, and of `aenv eval --json`."""
        line: dict[str, Any] = {"type": "result", "task": self.task}
        if self.attempt is not None:
            line["attempt"] = self.attempt
        line |= {"reward": self.reward, "outcome": str(self.outcome), "passed": self.passed}
        line |= {"seconds": self.timings.whole, "steps": self.steps}
        optional = {
            "error": self.reason,
            "parts": dict(self.parts),
            "attempts": self.attempts if self.attempts > 1 else None,
            "tokens": {"in": self.tokens.read, "out": self.tokens.written} if self.tokens else None,
            "self_check": self.self_check,
            "known": self.known,
            "split": self.split,
            "rollout": self.rollout,
            "timings": {
                stage: seconds
                for stage in ("start", "agent", "reward")
                if (seconds := getattr(self.timings, stage)) is not None
            },
        }
        line |= {name: value for name, value in optional.items() if value}
        if self.cost is not None:
            line["cost"] = round(self.cost, 6)
        return {**line, "variables": dict(self.variables), **self.run.as_json()}

    @classmethod
    def read(cls, line: Any) -> RolloutResult:
        """From `as_json`, also of the version before. InvalidRequest names the field that is wrong."""
        if not isinstance(line, dict) or not isinstance(line.get("task"), str):
            raise InvalidRequest("field 'task' must be a text")
        outcome = line.get("outcome")
        if outcome not in tuple(Outcome):
            raise InvalidRequest(f"field 'outcome' must be one of {', '.join(Outcome)}, and is {outcome!r}")
        attempt = line.get("attempt", 1)
        if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 1:
            raise InvalidRequest(f"field 'attempt' must be a number above 0, and is {attempt!r}")
        reward, passed = line.get("reward"), line.get("passed")
        if outcome == Outcome.REWARD:
            if not isinstance(reward, int | float) or isinstance(reward, bool) or not 0 <= reward <= 1:
                raise InvalidRequest(f"field 'reward' must be a number in 0..1, and is {reward!r}")
            if not isinstance(passed, bool):
                raise InvalidRequest(f"field 'passed' must be true or false, and is {passed!r}")
        elif reward is not None:
            raise InvalidRequest(f"field 'reward' must be null where the outcome is {outcome!r}")
        tokens, stages = _object(line, "tokens"), _object(line, "timings")
        return cls(
            task=line["task"],
            outcome=Outcome(outcome),
            reward=None if reward is None else float(reward),
            parts={str(name): float(value) for name, value in _object(line, "parts").items()},
            passed=passed,
            reason=str(line.get("error") or ""),
            attempt=line.get("attempt"),
            attempts=_number(line, "attempts", 1),
            timings=Timings(_number(line, "seconds", 0.0), **{str(name): stages[name] for name in stages}),
            steps=line.get("steps", 0),
            tokens=TokenCount(tokens["in"], tokens["out"]) if {"in", "out"} <= {*tokens} else None,
            cost=line.get("cost"),
            self_check=str(line.get("self_check") or ""),
            known=str(line.get("known") or ""),
            split=str(line.get("split") or ""),
            variables=_object(line, "variables"),
            run=RunIdentity.read(line),
            rollout=str(line.get("rollout") or ""),
        )


def _object(line: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = line.get(name) or {}
    if not isinstance(found, dict):
        raise InvalidRequest(f"field {name!r} must be an object")
    if name == "timings" and not {*found} <= {"start", "agent", "reward"}:
        raise InvalidRequest("field 'timings' may have 'start', 'agent' and 'reward'")
    return found


def _number(line: Mapping[str, Any], name: str, default: Any) -> Any:
    found = line.get(name, default)
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise InvalidRequest(f"field {name!r} must be a number, and is {found!r}")
    return found
