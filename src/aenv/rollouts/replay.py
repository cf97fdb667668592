"""Replays: the calls of a recorded rollout, made again on a fresh instance, as far as the answers are the same."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import AEnvError, NotFound
from ..base.outcomes import Outcome, Reward
from . import faults, known_secrets, live, locations, rewards
from .comparison import first_difference, stable
from .journal import encoded
from .results import RolloutResult, RunIdentity
from .task import Task, TaskSelection
from .task_instances import InstanceSource, TaskInstances, WatchedEnvironment
from .trajectory import AgentCall, Trajectory

_JUDGED = (Outcome.REWARD, Outcome.INVALID, Outcome.NOT_READY)
"""Outcomes of rollouts that came to their verifier; all others stay what they are."""


@dataclass(frozen=True)
class Divergence:
    """The first call whose answer is another one than was recorded."""

    call: int
    """From 1."""
    name: str
    detail: str


@dataclass(frozen=True)
class Replayed:
    """What came of a replay. `reward` is there where it was asked for, and nothing diverged."""

    trajectory: Trajectory
    calls: int
    divergence: Divergence | None = None
    outcome: Outcome = Outcome.REWARD
    """Other than `reward` where the replay itself broke off; `reason` says why."""
    reason: str = ""
    reward: Reward | None = None
    run: RunIdentity | None = None
    """The environment that it was replayed on."""

    @property
    def told(self) -> str:
        """In words: "4 calls, the same answers"."""
        if self.reason:
            return f"{self.outcome}: {self.reason}"
        if self.divergence:
            return f"call {self.divergence.call}, {self.divergence.name}: {self.divergence.detail}"
        return f"{self.calls} call{'s' * (self.calls != 1)}, the same answers" if self.calls else "no calls"

    @property
    def is_same(self) -> bool:
        return not self.divergence and not self.reason

    def rescored(self, on: RunIdentity | None = None) -> RolloutResult:
        """The result of the rollout as it is judged now: `invalid` where the replay diverged.

        `on` is the environment of the other replays, for a rollout that was not replayed.
        """
        before, on = self.trajectory.result, self.run or on
        assert before
        run = replace(before.run, environment=on.environment, digest=on.digest) if on else before.run
        plain = replace(before, reward=None, passed=None, parts={}, run=run, trajectory=None)
        if self.reason:
            return replace(plain, outcome=self.outcome, reason=self.reason)
        if self.divergence:
            return replace(plain, outcome=Outcome.INVALID, reason=f"the replay diverges: {self.told}")
        reward = self.reward
        assert reward
        if reward.number is None:
            return replace(plain, outcome=reward.outcome, reason=reward.reason)
        return replace(
            plain,
            outcome=Outcome.REWARD,
            reward=reward.number,
            passed=reward.is_full,
            parts=reward.parts,
            reason="",
        )


async def replay(instances: TaskInstances, trajectory: Trajectory, *, judge: bool = False) -> Replayed:
    """Make the calls again, one after the other, in the order in which they began. What breaks off is told.

    NotFound where there is no such environment: then nothing of the file can be replayed.
    """
    if unable := _unable(trajectory, judge):
        return unable
    head, calls = trajectory.head, trajectory.calls
    variables = {name: value for name, value in head.variables.items() if value != known_secrets.MASKED}
    task, made, begun = Task(head.task, variables, head.datasource), 0, False
    secrets = sorted(instances.place.secrets(task), key=len, reverse=True)
    try:
        async with (
            asyncio.timeout(instances.place.limit),
            instances.one(task, validation=head.validation) as env,
        ):
            begun = True
            run = RunIdentity(env.described.ref, instances.place.digest)
            for made, call in enumerate(calls, 1):
                if difference := await _differs(env, call, secrets):
                    return Replayed(trajectory, made, Divergence(made, call.name, difference), run=run)
            return Replayed(trajectory, made, run=run, reward=await rewards.of(env) if judge else None)
    except TimeoutError:
        return Replayed(
            trajectory, made, outcome=Outcome.TIMEOUT, reason=f"it took longer than {instances.place.limit:g} s"
        )
    except AEnvError as error:
        outcome, reason = faults.outcome_of(error, Outcome.ENV_ERROR), faults.reason_of(error)
        if isinstance(error, NotFound) and not begun and instances.place.name in reason:
            raise NotFound(f"{error.message}; a run of a project folder is replayed with --env FOLDER") from error
        return Replayed(trajectory, made, outcome=outcome, reason=reason)


def _unable(trajectory: Trajectory, judge: bool) -> Replayed | None:
    """What is said in place of a replay, where that could not come to the state that is to be judged."""
    before = trajectory.result
    if judge and before and before.outcome not in _JUDGED:
        return Replayed(trajectory, 0, outcome=before.outcome, reason=before.reason or "it was not judged")
    if trajectory.unrecorded:
        ways = ", ".join(f"env.{way}" if way != "mcp_url" else way for way in trajectory.unrecorded)
        reason = f"the agent used {ways}, and what it did there is not recorded"
        return Replayed(trajectory, 0, outcome=Outcome.INVALID, reason=reason)
    return None


async def _differs(env: WatchedEnvironment, call: AgentCall, secrets: Sequence[str]) -> str:
    """How the answer differs from the recorded one; "" where it does not."""
    if set(call.arguments) == {"cut_bytes"}:
        return "its arguments were too long to be recorded"
    error, is_error = "", False
    answer: dict[str, Any] = {}
    try:
        match call.kind:
            case "tool":
                result = await env.call_tool(call.name, dict(call.arguments))
                is_error, answer = result.is_error, {"content": result.content}
                answer |= {"value": result.structured} if result.structured is not None else {}
            case "function":
                answer = {"value": await env.call_function(call.name, dict(call.arguments))}
            case "reset":
                options = dict(call.arguments)
                answer = {"value": await env.reset(options.pop("seed", None), **options)}
    except AEnvError as failed:
        if faults.is_infrastructure(failed):
            raise
        error = failed.message
    if call.cut_bytes:
        same = hashlib.sha256(encoded(answer)).hexdigest() == call.digest
        return "" if same else f"it is another answer than the recorded one of {call.cut_bytes} bytes"
    recorded = [call.content, call.value, call.error, call.is_error]
    found = [answer.get("content", []), answer.get("value"), error, is_error]
    left, right = stable(recorded), stable(known_secrets.hidden(found, secrets))  # as a journal has them
    return "" if left == right else first_difference(left, right)


def replayed(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    trajectories: Sequence[Trajectory],
    concurrency: int,
    *,
    judge: bool = False,
) -> list[Replayed]:
    """Open the place, and replay those that are wanted. KeyboardInterrupt when it was stopped, in order."""
    chosen = _chosen(trajectories, wanted)

    async def main() -> list[Replayed]:
        found: list[Replayed] = []
        refused: list[BaseException] = []
        waiting = iter(chosen)
        async with (
            opened as there,
            TaskInstances(there) as instances,
            live.shown(f"{there.name} replay", len(chosen)) as shown,
        ):

            async def worker() -> None:
                for one in waiting:  # shared: the worker that is free takes the next
                    ended = await replay(instances, one, judge=judge)
                    found.append(ended)
                    shown(live.counted(passed=ended.is_same))

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(min(concurrency, len(chosen))):
                        group.create_task(worker())
            except* NotFound as missing:
                refused.append(missing.exceptions[0])
        if refused:
            raise refused[0]
        return found

    return locations.run(main)


def _chosen(trajectories: Sequence[Trajectory], wanted: TaskSelection) -> list[Trajectory]:
    ids = {id for text in wanted.tasks if isinstance(text, str) for id in (text, *text.split(","))}
    found = [one for one in trajectories if not ids or one.head.task in ids]
    if wanted.split:
        found = [one for one in found if one.result and one.result.split == wanted.split]
    if not found:
        raise NotFound("the file has no rollouts of these tasks")
    return found[: wanted.limit]
