"""Files of results and trajectories as the pages show them: a summary, a row for each rollout, and steps."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ..base.errors import AEnvError, InvalidRequest, NotFound
from ..base.wire import timestamp
from ..rollouts import journal
from ..rollouts.exports import exchange
from ..rollouts.results import RolloutResult, RunIdentity
from ..rollouts.trajectory import Step, Trajectory


@dataclass
class ViewedRollout:
    """A rollout with its result, its record, or both."""

    result: RolloutResult | None = None
    trajectory: Trajectory | None = None

    def row(self, id: str) -> dict[str, Any]:
        result, head = self.result, self.trajectory and self.trajectory.head
        timings = result.timings if result else None
        return {
            "id": id,
            "task": result.task if result else head.task if head else "",
            "attempt": result.number if result else (head.attempt if head else None) or 1,
            "outcome": str(result.outcome) if result else None,
            "reward": result.reward if result else None,
            "passed": result.passed if result else None,
            "seconds": timings.whole if timings else None,
            "timings": {
                stage: seconds
                for stage in ("start", "agent", "reward")
                if timings and (seconds := getattr(timings, stage)) is not None
            },
            "steps": result.steps if result else None,
            "error": result.reason if result else "",
            "has_steps": self.trajectory is not None,
        }


@dataclass
class ViewedRun:
    """One file, read whole."""

    identity: RunIdentity
    rollouts: dict[str, ViewedRollout] = field(default_factory=dict)
    """By the id under which pages ask for them."""
    began: float | None = None

    @classmethod
    def read(cls, path: Path) -> ViewedRun:
        """InvalidRequest names the line and the field that are wrong."""
        try:
            known = journal.read(path)
        except InvalidRequest as error:
            try:
                trajectories = exchange.load(path)
            except (AEnvError, ValueError):
                raise error from None
            return cls._of([], trajectories)
        return cls._of(list(known.results.values()), list(known.trajectories.values()), known.runs)

    @classmethod
    def _of(
        cls, results: Sequence[RolloutResult], trajectories: Sequence[Trajectory], runs: Sequence[RunIdentity] = ()
    ) -> ViewedRun:
        found: dict[str, ViewedRollout] = {}
        for number, one in enumerate(trajectories):
            found[one.head.rollout or f"t{number}"] = ViewedRollout(one.result, one)
        for number, result in enumerate(results):
            id = result.rollout or f"r{number}"
            found.setdefault(id, ViewedRollout()).result = result
        identities = [*runs, *(one.run for one in results), *(one.identity for one in trajectories)]
        times = [one.head.at for one in trajectories if one.head.at]
        return cls(next(iter(identities), RunIdentity("")), found, min(times, default=None))

    def summary(self) -> dict[str, Any]:
        results = [one.result for one in self.rollouts.values() if one.result]
        rewards = [one.reward for one in results if one.reward is not None]
        return {
            "environment": self.identity.environment,
            "agent": self.identity.agent,
            "model": self.identity.model,
            "seed": self.identity.seed,
            "began": timestamp(self.began) if self.began else None,
            "rollouts": len(self.rollouts),
            "judged": len(rewards),
            "passed": sum(one.passed is True for one in results),
            "mean_reward": sum(rewards) / len(rewards) if rewards else None,
            "median_seconds": median(one.timings.whole for one in results) if results else None,
            "outcomes": dict(Counter(str(one.outcome) for one in results)),
            "error": None,
        }

    def rows(self) -> list[dict[str, Any]]:
        return [one.row(id) for id, one in self.rollouts.items()]

    def trajectory(self, id: str) -> dict[str, Any]:
        """A rollout, step by step."""
        found = self.rollouts.get(id)
        if found is None or found.trajectory is None:
            raise NotFound(f"rollout {id!r} has no steps in this file")
        one = found.trajectory
        return {
            "task": one.head.task,
            "attempt": one.head.attempt or 1,
            "environment": one.identity.environment,
            "instance": one.head.instance,
            "variables": dict(one.head.variables),
            "unrecorded": one.unrecorded,
            "steps": _steps(one),
        }


_UNREADABLE: dict[str, Any] = {
    "environment": "",
    "agent": "",
    "model": None,
    "seed": 0,
    "began": None,
    "rollouts": 0,
    "judged": 0,
    "passed": 0,
    "mean_reward": None,
    "median_seconds": None,
    "outcomes": {},
}


FileVersion = tuple[int, int]
"""When a file was changed, and its size."""


class ViewedRuns:
    """Files that are shown, by a number. Each is read again when it has changed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [path.absolute() for path in paths]
        self._read: dict[Path, tuple[FileVersion, ViewedRun]] = {}
        self._reading = threading.Lock()

    def versions(self) -> Sequence[FileVersion | None]:
        """What changes when a file does; None for one that is not there."""
        return [_version(path) for path in self._paths]

    def list(self) -> list[dict[str, Any]]:
        """A summary of each file; one that cannot be read has an `error` instead."""
        return [self._summary(number, path) for number, path in enumerate(self._paths)]

    def show(self, number: str) -> dict[str, Any]:
        """The summary of a file, and its rollouts as `rows`."""
        path = self._path(number)
        run = self._run(path)
        return {"id": number, "name": path.name, **run.summary(), "rows": run.rows()}

    def trajectory(self, number: str, rollout: str) -> dict[str, Any]:
        return self._run(self._path(number)).trajectory(rollout)

    def _summary(self, number: int, path: Path) -> dict[str, Any]:
        try:
            said = self._run(path).summary()
        except AEnvError as error:
            said = {**_UNREADABLE, "error": error.message}
        except OSError as error:
            said = {**_UNREADABLE, "error": f"{str(path)!r}: {(error.strerror or str(error)).lower()}"}
        return {"id": str(number), "name": path.name, **said}

    def _path(self, number: str) -> Path:
        if not number.isascii() or not number.isdecimal() or int(number[:9]) >= len(self._paths):
            raise NotFound(f"no run {number!r}; there are {len(self._paths)}")
        return self._paths[int(number)]

    def _run(self, path: Path) -> ViewedRun:
        with self._reading:  # pages ask at the same time: what one has read is there for the others
            state = path.stat()
            version: FileVersion = (state.st_mtime_ns, state.st_size)
            known = self._read.get(path)
            if known is None or known[0] != version:
                known = self._read[path] = version, ViewedRun.read(path)
            return known[1]


def _version(path: Path) -> FileVersion | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size


def check_any_is_shown(paths: Sequence[Path]) -> None:
    """InvalidRequest, with what is wrong with the first, where none of these files can be shown."""
    problems = []
    for path in paths:
        try:
            run = ViewedRun.read(path)
        except InvalidRequest as error:
            problems.append(error)
            continue
        if run.rollouts or run.identity.environment or not path.stat().st_size:  # one may have just begun
            return
        problems.append(InvalidRequest(f"{str(path)!r} has no results"))
    if problems:
        problems[0].details["hint"] = "a file of results, as 'aenv eval' writes it"
        raise problems[0]


def _steps(one: Trajectory) -> list[dict[str, Any]]:
    """What happened, in order. Where the steps have no messages, a conversation that was told has them."""
    if not any(step.message for step in one.steps) and (one.own_messages or one.exchange_lines):
        return [_step(Step(number, turn.at, message=turn.message)) for number, turn in enumerate(one.turns)]
    return [_step(step) for step in one.steps]


def _step(step: Step) -> dict[str, Any]:
    call = step.call
    return {
        "index": step.index,
        "at": step.at,
        "seconds": step.seconds,
        "reward": step.reward,
        "message": step.message,
        "call": call
        and {
            "kind": call.kind,
            "name": call.name,
            "arguments": dict(call.arguments),
            "content": call.content,
            "is_error": call.is_error,
            "value": call.value,
            "error": call.error,
            "cut_bytes": call.cut_bytes,
        },
    }
