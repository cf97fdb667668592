"""The loop: warm start, held-out tasks before, steps of GRPO until the time is used, held-out tasks after."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from .arena import ENVIRONMENT, Arena, LaneClock
from .dialogue import PlayedEpisode, Policy
from .policy_update import Trainer, UpdateSettings
from .small_policy import SmallPolicy, TransformerShape
from .training_report import TrainingResult, TrainingStep, sign_test

_TRAINING_TASKS = 20_000
_SHOWN_PROBLEMS = 256
_SHOWN_AT_ONCE = 64


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that a run is made of."""

    minutes: float = 10.0
    seed: int = 0
    levels: tuple[int, ...] = (1,)
    device: str = "cpu"
    model: str = "small"
    shape: TransformerShape = field(default_factory=TransformerShape)
    instances: int = 64
    lanes: int = 2
    threads: int = 1
    """Threads of the model on the CPU; the other cores have the instances and the gateway."""
    tasks_per_step: int = 32
    group: int = 8
    held_out: int = 256
    warm_steps: int = 150
    steps: int | None = None
    """At most so many steps of GRPO; without a limit, as many as there is time for."""
    update: UpdateSettings = field(default_factory=UpdateSettings)


class NoTimeLeft(Exception):
    """The start, the warm start and the held-out tasks have used the time, so that nothing would be trained."""


class TrainingRun:
    """One training. `tell` gets a line of progress at a time."""

    def __init__(self, settings: TrainingSettings, tell: Callable[[str], None]) -> None:
        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._tell = tell
        self._draw = random.Random(settings.seed)
        self._policy = _policy(settings)
        self._trainer = Trainer(self._policy, settings.update, settings.seed)
        self._rollouts = self._calls = 0
        self._curve: list[TrainingStep] = []

    async def run(self) -> TrainingResult:
        """Train for as long as is set, the start and the held-out tasks included; or raise `NoTimeLeft`."""
        settings, start = self._settings, time.monotonic()
        clock = LaneClock(torch.cuda.synchronize if settings.device.startswith("cuda") else lambda: None)
        try:
            async with Arena(settings.instances, settings.lanes, clock) as arena:
                training = await arena.tasks("train", settings.levels, _TRAINING_TASKS)
                held_out = await arena.tasks("test", settings.levels, settings.held_out)
                self._tell(f"{settings.instances} instances after {time.monotonic() - start:.1f} s")
                await self._warm_up(arena, clock, training)
                measured = time.monotonic()
                before = await self._held_out(arena, held_out)
                measured = time.monotonic() - measured
                self._tell(f"held-out reward before: {_mean(before):.3f} ({len(before)} tasks)")
                end = start + 60 * settings.minutes - 1.5 * measured
                if settings.steps != 0 and time.monotonic() >= end:
                    needed = time.monotonic() - start + 1.5 * measured
                    raise NoTimeLeft(
                        f"no time is left for a step of training: the start and the held-out tasks take "
                        f"{needed:.0f} s of {60 * settings.minutes:.0f} s here; "
                        f"give at least --minutes {math.ceil(needed / 60) + 1}"
                    )
                begun, computed = time.monotonic(), clock.computing
                await self._train(arena, clock, training, end)
                trained = time.monotonic() - begun
                computing = (clock.computing - computed) / trained
                after = await self._held_out(arena, held_out)
                self._tell(f"held-out reward after: {_mean(after):.3f}")
                return TrainingResult(
                    environment=ENVIRONMENT,
                    model=self._policy.name,
                    parameters=sum(part.numel() for part in self._policy.module.parameters()),
                    device=settings.device,
                    seed=settings.seed,
                    levels=list(settings.levels),
                    instances=settings.instances,
                    held_out_tasks=len(held_out),
                    before=_mean(before),
                    after=_mean(after),
                    p_value=sign_test(before, after),
                    rollouts=self._rollouts,
                    rollouts_lost=arena.lost,
                    tool_calls=self._calls,
                    seconds=round(time.monotonic() - start, 3),
                    training_seconds=round(trained, 3),
                    rollouts_per_second=round(self._rollouts / trained, 3),
                    environment_share=round(1 - computing, 4),
                    computing_share=round(computing, 4),
                    curve=self._curve,
                )
        finally:
            clock.close()

    async def _warm_up(self, arena: Arena, clock: LaneClock, tasks: Sequence[str]) -> None:
        """Show how calls are written. What is calculated is drawn at random: nothing of solving is shown."""
        settings = self._settings
        problems = await arena.problems(tasks[:_SHOWN_PROBLEMS])
        count = min(_SHOWN_AT_ONCE, settings.update.batch)
        for step in range(settings.warm_steps):
            shown = [self._policy.demonstrate(self._draw.choice(problems), self._draw) for _ in range(count)]
            loss = await clock.compute(self._trainer.imitate, shown)
            if step % 50 == 0 or step == settings.warm_steps - 1:
                self._tell(f"warm start {step + 1}/{settings.warm_steps}: loss {loss:.3f}")

    async def _train(self, arena: Arena, clock: LaneClock, tasks: Sequence[str], end: float) -> None:
        settings = self._settings
        begun, computed, longest = time.monotonic(), clock.computing, 0.0
        while (now := time.monotonic()) + longest < end and len(self._curve) != settings.steps:
            chosen = self._draw.sample(tasks, settings.tasks_per_step)
            episodes = await arena.play(self._policy, [task for task in chosen for _ in range(settings.group)])
            telling = await clock.compute(self._trainer.learn, episodes)
            judged = [one.reward for one in episodes if one.reward is not None]
            self._rollouts += len(judged)
            self._calls += sum(one.calls for one in episodes)
            passed = time.monotonic() - begun
            longest = max(longest, time.monotonic() - now)
            self._curve.append(TrainingStep(round(passed, 3), self._rollouts, _mean(judged)))
            recent = [step.reward for step in self._curve[-10:]]
            self._tell(
                f"step {len(self._curve)}: reward {_mean(judged):.3f} (last 10: {_mean(recent):.3f}), "
                f"{telling:.0%} of episodes teach, {self._rollouts / passed:.0f} rollouts/s, "
                f"environments {1 - (clock.computing - computed) / passed:.0%}, "
                f"{max(0.0, end - time.monotonic()):.0f} s left"
            )

    async def _held_out(self, arena: Arena, tasks: Sequence[str]) -> list[float]:
        """A reward for each task; what the platform lost is played again, so that none is missing."""
        rewards: dict[str, float] = {}
        while missing := [task for task in tasks if task not in rewards]:
            played: list[PlayedEpisode] = await arena.play(self._policy, missing)
            rewards.update({one.task: one.reward for one in played if one.reward is not None})
        return [rewards[task] for task in tasks]


def _policy(settings: TrainingSettings) -> Policy:
    if settings.model == "small":
        return SmallPolicy(settings.device, settings.shape, settings.seed)
    from .smollm_policy import SmolPolicy  # it loads another framework

    return SmolPolicy(settings.device, settings.seed)


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else 0.0
