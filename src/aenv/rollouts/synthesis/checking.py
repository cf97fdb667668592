"""Checks of proposals, each a run of rollouts: with nothing done, with the gold, and with an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import AEnvError, InvalidRequest
from ...base.outcomes import Outcome
from .. import runner
from ..agents import Nop, Oracle
from ..episodes import Agent, AgentUsage, Timeouts
from ..results import RolloutResult
from ..runner import RunnerOptions
from ..task import TaskSelection
from ..task_instances import InstanceSource, WatchedEnvironment
from .proposals import GoldCall, Proposal
from .work_log import CheckedAttempt, WorkLog


class NotChecked(AEnvError):
    """A check was cut short by the infrastructure, which says nothing about the task."""

    code = "not_checked"


class _Listener(Nop):
    """Does nothing, and keeps what an agent is told."""

    asks = True

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        spent.say({"role": "user", "content": str(task.get("instruction") or "")})


class _GoldPlayer(Nop):
    """Makes the calls of the gold that came with a task, as an agent would."""

    name = "gold"

    def __init__(self, gold: Mapping[str, Sequence[GoldCall]]) -> None:
        self._gold = gold

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None:
        for call in self._gold[task["id"]]:
            if call.kind == "tool":
                await env.call_tool(call.name, dict(call.arguments))
            else:
                await env.call_function(call.name, dict(call.arguments))


@dataclass(frozen=True)
class ProposalChecks:
    """Runs checks where instances are made; what the log knows is not run again."""

    place: InstanceSource
    log: WorkLog
    concurrency: int
    seed: int

    async def empty(self, proposals: Sequence[Proposal]) -> dict[str, CheckedAttempt]:
        """With nothing done: what agents are told, and whether that is rewarded."""
        return {id: found[0] for id, found in (await self._run("empty", proposals, _Listener())).items()}

    async def gold(self, proposals: Sequence[Proposal]) -> dict[str, CheckedAttempt]:
        """With the gold of the source, or with the environment's own."""
        own = {one.task.id: one.gold for one in proposals if one.gold}
        found = await self._run("gold", [one for one in proposals if one.gold], _GoldPlayer(own))
        found |= await self._run("gold", [one for one in proposals if not one.gold], Oracle())
        return {id: attempts[0] for id, attempts in found.items()}

    async def solved(
        self, proposals: Sequence[Proposal], agent: Agent, repeat: int
    ) -> dict[str, list[CheckedAttempt]]:
        """With an agent, several times each."""
        return await self._run("solve", proposals, agent, repeat)

    async def _run(
        self, stage: str, proposals: Sequence[Proposal], agent: Agent, repeat: int = 1
    ) -> dict[str, list[CheckedAttempt]]:
        left = [one.task for one in proposals if self.log.attempts(stage, one.task.id, repeat) is None]
        if left:
            options = RunnerOptions(
                seed=self.seed,
                repeat=repeat if repeat > 1 else None,
                concurrency=self.concurrency,
                timeouts=Timeouts(whole=self.place.limit),
            )
            failed: list[RolloutResult] = []

            def ended(result: RolloutResult) -> None:
                if result.outcome in (Outcome.INFRA_ERROR, Outcome.NOT_READY, Outcome.CANCELLED):
                    failed.append(result)
                else:
                    self.log.checked(CheckedAttempt.of(stage, result))

            await runner.run(self.place, TaskSelection(left), agent, options, ended)
            if failed and failed[0].outcome is Outcome.NOT_READY:
                raise InvalidRequest(f"task {failed[0].task!r} cannot be checked: {failed[0].reason}")
            if failed:
                raise NotChecked(
                    f"the check of task {failed[0].task!r} was cut short: {failed[0].reason}; the same command "
                    "goes on where it was"
                )
        return {one.task.id: self.log.attempts(stage, one.task.id, repeat) or [] for one in proposals}
