"""Episodes: one agent plays one task, on as many instances as the infrastructure makes it take, to one result."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol

from ..base.errors import AEnvError, InvalidRequest
from ..base.outcomes import Outcome, Reward
from ..client.environment import Environment
from . import faults, held_loop, known_secrets, rewards
from .capture import Capture
from .capture.exchange_log import ExchangeLog
from .faults import OutOfTime
from .held_loop import LoopHeld
from .journal import Journal, NotRecorded
from .recorder import Recorder
from .results import RolloutResult, RunIdentity, Timings, TokenCount
from .task import Task
from .task_instances import TaskInstances, WatchedEnvironment
from .trajectory import Message, SampledTokens, TrajectoryHead

logger = logging.getLogger("aenv.rollouts.episodes")

MAX_CALLS = 1_000


@dataclass(frozen=True)
class Timeouts:
    """Seconds for the stages of one attempt; None leaves a stage to `whole`, which is all of them."""

    start: float | None = None
    agent: float | None = None
    reward: float | None = None
    whole: float = 1800.0

    def __post_init__(self) -> None:
        for name in ("start", "agent", "reward"):
            if (value := getattr(self, name)) is not None and not (isinstance(value, int | float) and value >= 0):
                raise InvalidRequest(f"timeouts: {name!r} must be a number of 0 or more seconds, and is {value!r}")
        if not (isinstance(self.whole, int | float) and self.whole > 0):
            raise InvalidRequest(
                f"timeouts: 'whole' must be a number of more than 0 seconds, and is {self.whole!r}"
            )

    @property
    def of_agent(self) -> float:
        """How long an agent may play at most."""
        return self.whole if self.agent is None else min(self.agent, self.whole)


@dataclass(frozen=True)
class PlayRules:
    """What holds for every episode of a run."""

    run: RunIdentity
    timeouts: Timeouts = field(default_factory=Timeouts)
    retries: int = 2
    """How many more instances an episode gets when the infrastructure fails."""
    max_calls: int | None = MAX_CALLS
    capture: Capture | None = None
    """What stands between agents and their model."""
    offers_task: bool | None = None
    """Whether the environment has `get_task`; None where it has to be asked."""


class AgentUsage:
    """What an agent used, and what was said, where it knows. What is said is recorded at once."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.tokens_in: int | None = None
        self.tokens_out: int | None = None
        self.cost: float | None = None
        self.messages: list[Message] = []
        self.recorder = recorder

    def say(self, message: Message, tokens: SampledTokens | None = None) -> None:
        """A message of the conversation."""
        self.messages.append(message)
        if self.recorder:
            self.recorder.message(message, tokens)

    def begin(self, task: Mapping[str, Any]) -> None:
        """The messages with which every conversation begins."""
        if task.get("system"):
            self.say({"role": "system", "content": str(task["system"])})
        self.say({"role": "user", "content": str(task.get("instruction") or "Begin.")})

    @property
    def tokens(self) -> TokenCount | None:
        return None if self.tokens_in is None else TokenCount(self.tokens_in, self.tokens_out or 0)


class Agent(Protocol):
    """Plays tasks. `validation` asks for instances that show their gold; `asks` says that it reads the task."""

    name: str
    validation: bool
    asks: bool

    async def play(self, env: WatchedEnvironment, task: dict[str, Any], spent: AgentUsage) -> None: ...

    async def close(self) -> None: ...


class AgentStopped(AEnvError):
    """The agent did what no agent may do, and was stopped."""

    code = "agent_stopped"


@dataclass
class Episode:
    """A task to play, and the result, which is there once it was played, however that ended."""

    task: Task
    attempt: int | None = None
    """Which attempt at the task it is, where there are to be several."""
    result: RolloutResult | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def told(self) -> dict[str, Any]:
        """What the agent is told beside what the environment says."""
        return {**self.task.told, **({"attempt": self.attempt} if self.attempt else {})}


async def play(
    instances: TaskInstances, episode: Episode, agent: Agent, rules: PlayRules, journal: Journal
) -> None:
    """Play one task. What goes wrong on the way is an outcome, not an exception; a cancellation is both.

    A failure of the infrastructure is tried again on a fresh instance.
    """
    began, number = time.perf_counter(), 1
    variables = instances.place.told_variables(episode.task)
    journal.hide(instances.place.secrets(episode.task))
    attempt = _Attempt(episode, agent, rules, journal, variables)
    try:
        await attempt.on_instance_of(instances)
        while attempt.may_pass and number <= rules.retries:
            attempt.give_up()
            number += 1
            attempt = _Attempt(episode, agent, rules, journal, variables, number)
            await attempt.on_instance_of(instances)
    finally:
        episode.result = attempt.result(time.perf_counter() - began)


async def play_on(env: Environment, episode: Episode, agent: Agent, rules: PlayRules, journal: Journal) -> None:
    """Play one task on an instance that exists and that its owner releases; there is one attempt."""
    began = time.perf_counter()
    journal.hide(known_secrets.values({**(env.environment_variables or {}), **episode.task.variables}))
    attempt = _Attempt(episode, agent, rules, journal, known_secrets.told(episode.task.variables))
    try:
        await attempt.on(WatchedEnvironment.over(env))
    finally:
        episode.result = attempt.result(time.perf_counter() - began)


class _Attempt:
    """One instance's worth of an episode: its stages, and how they ended."""

    def __init__(
        self,
        episode: Episode,
        agent: Agent,
        rules: PlayRules,
        journal: Journal,
        variables: Mapping[str, str],
        number: int = 1,
    ) -> None:
        self.usage = AgentUsage()
        self.may_pass = False
        self._episode = episode
        self._agent = agent
        self._rules = rules
        self._journal = journal
        self._variables = variables
        self._number = number
        self._outcome = Outcome.CANCELLED
        self._reason = "the evaluation was stopped"
        self._blamed = Outcome.INFRA_ERROR
        """For what raises next."""
        self._reward: Reward | None = None
        self._steps: int | None = 0
        self._checked = ("", "")
        self._seconds: dict[str, float] = {}
        self._exchanges: ExchangeLog | None = None
        self._playing: asyncio.Task[None] | None = None

    async def on_instance_of(self, instances: TaskInstances) -> None:
        """On a new instance, which is given back."""
        async with AsyncExitStack() as stack:

            async def started() -> WatchedEnvironment:
                one = instances.one(self._episode.task, validation=self._agent.validation)
                return await stack.enter_async_context(one)

            await self._to_the_end(started)

    async def on(self, env: WatchedEnvironment) -> None:
        """On an instance that exists."""

        async def started() -> WatchedEnvironment:
            await env.initialize()
            return env

        await self._to_the_end(started)

    async def _to_the_end(self, start: Callable[[], Awaitable[WatchedEnvironment]]) -> None:
        limit = self._rules.timeouts.whole
        whole: asyncio.Timeout | None = None
        env: WatchedEnvironment | None = None
        try:
            async with held_loop.limited(limit, lambda: self._playing) as whole:
                async with self._stage("start"):
                    env = await start()
                await self._stages(env)
        except Exception as error:  # boundary: the agent's code
            # What broke first counts: an agent makes other errors of it, or hides it.
            first = env.broken if env and env.broken else error
            self._failed(OutOfTime("episode", limit) if whole and whole.expired() else first)

    async def _stages(self, env: WatchedEnvironment) -> None:
        self._blamed = Outcome.ENV_ERROR
        asks = self._agent.asks and self._rules.offers_task
        if asks is None:
            asks = any(one["name"] == "get_task" for one in (await env.list_functions())["functions"])
        said = await env.call_function("get_task") if asks else {}
        about = {"id": self._episode.task.id, **said, **self._episode.told, "seed": self._seed()}
        self.usage.recorder = env.recorder = recorder = await self._recorder(env)
        # With `validation` the environment plays its own solution.
        self._blamed = Outcome.ENV_ERROR if self._agent.validation else Outcome.AGENT_ERROR
        try:
            async with self._captured(env, recorder), self._stage("agent"):
                await self._play(env, about)
        finally:
            env.recorder, env.is_over = None, True  # what comes now is not the agent's
            self._steps = None if env.played is None else env.steps + env.played
        if env.broken:
            raise env.broken
        self._blamed = Outcome.ENV_ERROR
        try:
            async with self._stage("reward"):
                reward = await rewards.of(env)
        finally:
            self._checked = env.checked or ("", "")
        self._outcome, self._reason, self._reward = reward.outcome, reward.reason, reward

    async def _recorder(self, env: WatchedEnvironment) -> Recorder:
        tools = await env.known_tools()
        head = TrajectoryHead(
            self._episode.id,
            self._episode.task.id,
            self._episode.attempt,
            self._number,
            env.instance_id or "",
            self._variables,
            self._episode.task.datasource,
            self._agent.validation,
            self._journal.tools(tools),
            round(time.time(), 3),
            self._episode.task.digest,
        )
        return Recorder(self._journal, head, tools)

    @asynccontextmanager
    async def _captured(self, env: WatchedEnvironment, recorder: Recorder) -> AsyncIterator[None]:
        """Let the agent ask its model by the capture, if there is one; what that records is the rollout's."""
        capture = self._rules.capture
        if capture is None:
            yield
            return
        self._exchanges = ExchangeLog(self._journal, recorder.trajectory)
        env.captured = capture.admit(self._exchanges)
        try:
            yield
        finally:
            await capture.dismiss(env.captured.key)
            env.broken = env.broken or self._exchanges.failure

    async def _play(self, env: WatchedEnvironment, about: dict[str, Any]) -> None:
        """Let the agent play, in a task of its own: so it ends when it must, whatever it does about that."""
        env.max_calls, env.flooded = self._rules.max_calls, asyncio.Event()

        async def guarded() -> None:
            try:
                await self._agent.play(env, about, self.usage)
            except SystemExit as error:  # it would end the whole run
                raise AgentStopped(f"the agent exited with {error.code!r}") from error
            except LoopHeld:
                raise OutOfTime("agent", self._rules.timeouts.of_agent) from None

        playing = self._playing = asyncio.create_task(guarded())
        held_loop.watch(playing)
        flooded = asyncio.create_task(env.flooded.wait())
        try:
            await asyncio.wait({playing, flooded}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                raise AgentStopped(f"the agent made more than {env.max_calls} calls")
            if playing.cancelled():  # not by us: that is below
                raise AgentStopped("the agent raised CancelledError, or cancelled itself")
            error = playing.exception()
            if error and not isinstance(error, Exception | KeyboardInterrupt):
                raise AgentStopped(faults.reason_of(error)) from error  # it would end the whole run
            playing.result()
        finally:
            flooded.cancel()
            await _ended(playing)

    @asynccontextmanager
    async def _stage(self, name: Literal["start", "agent", "reward"]) -> AsyncIterator[None]:
        """The time of a stage is measured and limited."""
        limit = getattr(self._rules.timeouts, name)
        began = time.perf_counter()
        timeout: asyncio.Timeout | None = None
        try:
            async with held_loop.limited(limit, lambda: self._playing) as timeout:
                yield
        except TimeoutError:
            if timeout and timeout.expired():
                raise OutOfTime(name, limit) from None
            raise
        finally:
            self._seconds[name] = round(time.perf_counter() - began, 6)

    def _seed(self) -> int:
        """Of the agent, for its choices: another one for each task and attempt."""
        key = f"{self._rules.run.seed}:{self._episode.task.id}:{self._episode.attempt or 1}"
        return Random(key).getrandbits(31)

    def _failed(self, error: BaseException) -> None:
        self._outcome, self._reason = faults.outcome_of(error, self._blamed), faults.reason_of(error)
        self.may_pass = self._outcome == Outcome.INFRA_ERROR and faults.may_pass(error)

    def give_up(self) -> None:
        """Another attempt follows. Where that cannot be written down, this one is still the shorter record."""
        if self.usage.recorder:
            with suppress(NotRecorded):
                self.usage.recorder.retry(self._outcome, self._reason)

    def result(self, seconds: float) -> RolloutResult:
        """How it ended, as far as it came."""
        reward = self._reward
        is_judged = reward is not None and reward.number is not None
        status, known = self._checked
        trajectory = self.usage.recorder.trajectory if self.usage.recorder else None
        result = RolloutResult(
            task=self._episode.task.id,
            outcome=self._outcome,
            reward=reward.number if reward else None,
            parts=reward.parts if reward and is_judged else {},
            passed=reward.is_full if reward and is_judged else None,
            reason="" if is_judged else self._reason,
            attempt=self._episode.attempt,
            attempts=self._number,
            timings=Timings(round(seconds, 3), **self._seconds),
            steps=self._steps,
            tokens=self.usage.tokens or (self._exchanges.tokens if self._exchanges else None),
            cost=self.usage.cost,
            self_check=status,
            known=known if status == "known" else "",
            split=self._episode.task.split,
            variables=self._variables,
            run=self._rules.run,
            rollout=self._episode.id,
            trajectory=trajectory,
        )
        if trajectory:
            trajectory.result = result
        return result


async def _ended(playing: asyncio.Task[None]) -> None:
    """See an agent to its end. One that does not end when it is cancelled is left to itself: its calls fail."""
    if playing.done():
        return
    playing.cancel()
    try:
        await asyncio.wait({playing}, timeout=held_loop.GRACE)
    finally:  # also where the time of the whole episode ends first
        if not playing.done():
            logger.warning("an agent goes on after it was cancelled, and is left to itself")
            held_loop.abandon(playing)
        elif not playing.cancelled():
            playing.exception()  # seen: the outcome is that it did not end by itself
