"""Validation: the contract, determinism, gold and empty episodes of every task, and attempts to cheat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from ..base.errors import AEnvError, InvalidRequest, NotFound, NotJudged, ToolError
from ..base.outcomes import Outcome
from . import cheats, contract, live, locations, replay, rewards, samples, task
from .cheats import Cheat
from .comparison import first_difference, stable
from .contract import OfferedFunctions
from .journal import Journal
from .recorder import Recorder
from .report import Finding, Report
from .task import Task, TaskSelection
from .task_instances import InstanceSource, TaskInstances, WatchedEnvironment
from .trajectory import TrajectoryHead

T = TypeVar("T")

_STEPS = 6  # calls of a scripted episode
_CHEATED = 3  # tasks on which every attempt is made


@dataclass
class _Played:
    """What an episode gave: its answers and its reward, to compare with another."""

    said: Any
    reward: rewards.Reward | None

    def differs_from(self, other: _Played) -> str:
        first, second = (_told(one.reward) for one in (self, other))
        if stable(first) != stable(second):
            return f"the reward was {first!r} and then {second!r}"
        if stable(self.said) != stable(other.said):
            return f"it said {first_difference(stable(self.said), stable(other.said))}"
        return ""


@dataclass
class Validation:
    """One run over one environment; its report grows."""

    instances: TaskInstances
    wanted: TaskSelection
    concurrency: int
    report: Report
    determinism: bool = False
    """Whether calls from a seed are recorded and replayed for every task."""
    offer: OfferedFunctions = field(default_factory=lambda: OfferedFunctions([], {}, []))
    exceptions: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {"gold": {}, "empty": {}})
    answers: dict[str, str] = field(default_factory=dict)
    """What `play_gold` says is the answer, for tasks that have a short one."""

    @property
    def has_gold(self) -> bool:
        return self.offer.has("play_gold")

    async def run(self) -> None:
        """Every check. One that breaks off is a finding, too."""
        async with live.creating(f"starting an instance of {self.instances.place.name}"):
            tasks = await self._contract()
        first = tasks[0] if tasks else None
        if first:
            self.report.tasks = len(tasks)
            await self._play(tasks)
        async with live.creating(f"trying resets and cheats on {self.report.environment}"):
            await self._determinism(first)
            if self.determinism:
                await self._each(tasks, self._replayed)
            await self._reset(first)
            if first:
                await self._cheat(tasks)
        if first:
            return
        if self.offer.has("list_tasks"):
            self.report.tasks = 0
        else:
            self._add("cheats", "all", "not applicable", "no tasks: it registers no function 'list_tasks'")

    def _add(self, check: str, subject: str, status: Any, detail: str = "") -> None:
        self.report.add([Finding(check, subject, status, detail)])

    # The contract.

    async def _contract(self) -> list[Task]:
        """What the environment offers; the tasks to play."""
        async with self.instances.one() as env:
            self.offer = await contract.offer_of(env)
            told = env.described
            self.report.isolation = f"{told.engine} engine, {'isolated' if told.is_isolated else 'not isolated'}"
            self.report.environment = told.ref
            self.report.add(contract.described(self.offer, told.description))
            self.report.add([await contract.health(env)])
            if not self.offer.has("list_tasks"):
                self._add(
                    "tasks", "environment", "not applicable", "no tasks: it registers no function 'list_tasks'"
                )
                await self._reward_without_tasks(env)
                return []
            return await self._tasks(env)

    async def _tasks(self, env: WatchedEnvironment) -> list[Task]:
        try:
            split = {"split": self.wanted.split} if self.wanted.split else {}
            known = task.read(await env.call_function("list_tasks", split))
        except AEnvError as error:
            self._add("tasks", "list_tasks", "failed", error.message)
            return []
        if not known:
            self._add("tasks", "list_tasks", "failed", "it lists no tasks")
            return []
        self.report.add([await contract.splits(env, self.offer, {one.split for one in known if one.split})])
        if not self.offer.rewards:
            self._add("reward", "environment", "failed", "it has tasks and registers no reward")
            return []
        if self.offer.has("known_exceptions"):
            try:
                self.exceptions = contract.exceptions(await env.call_function("known_exceptions"))
            except AEnvError as error:
                self._add("tasks", "known_exceptions", "failed", error.message)
        if self.wanted.is_everything:
            self._unknown_exceptions({one.id for one in known})
        return task.chosen(known, self.wanted)

    def _unknown_exceptions(self, ids: set[str]) -> None:
        for kind, declared in self.exceptions.items():
            for id in declared:
                if id not in ids:
                    self._add("tasks", "known_exceptions", "failed", f"{kind}: there is no task {id!r}")

    async def _reward_without_tasks(self, env: WatchedEnvironment) -> None:
        if not self.offer.rewards:
            return
        try:
            reward = await rewards.of(env)
        except InvalidRequest as error:
            self._add("reward", "default", "not applicable", f"it takes arguments: {error.message}")
        except AEnvError as error:
            self._broke("reward", "default", error)
        else:
            self.report.add([_range("default", reward)])

    # Gold and empty episodes.

    async def _play(self, tasks: Sequence[Task]) -> None:
        async with live.shown(f"{self.report.environment} gold and empty", len(tasks)) as shown:

            async def both(one: Task) -> None:
                await self._empty(one)
                if self.has_gold:
                    await self._gold(one)
                shown(live.counted(passed=self.report.passed))

            await self._each(tasks, both)
        if not self.has_gold:
            self._add("gold", "all", "not applicable", "it registers no function 'play_gold'")

    async def _each(self, things: Sequence[T], act: Callable[[T], Awaitable[None]]) -> None:
        waiting = iter(things)

        async def worker() -> None:
            for thing in waiting:
                await act(thing)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(things))):
                group.create_task(worker())

    async def _empty(self, one: Task) -> None:
        """An episode in which nothing is done, with what can be asked before anything is done."""
        try:
            async with self.instances.one(one) as env:
                if self.offer.has("get_task"):
                    self.report.add([contract.task_told(one.id, await env.call_function("get_task"))])
                reward = await rewards.of(env)
                self._note_check(one, env)
                sealed = await contract.sealed(env, self.offer)
        except AEnvError as error:
            self._broke("empty", one.id, error)
            return
        self.report.add(sealed if any(finding.is_bad for finding in sealed) else [])
        self._once("sealed", sealed)
        self._judge("empty", one, reward, deviates=reward.is_full)

    def _note_check(self, one: Task, env: WatchedEnvironment) -> None:
        """What the gateway has found by itself, where the environment has that."""
        if env.checked:
            status, reason = env.checked
            found = {"held": "ok", "known": "known", "skipped": "not applicable"}.get(status, "failed")
            self._add("self-check", one.id, found, reason or ("it was left out" if status == "skipped" else ""))

    async def _gold(self, one: Task) -> None:
        try:
            played = await self._play_gold(one)
        except AEnvError as error:
            if why := self.exceptions["gold"].get(one.id):
                self._add("gold", one.id, "known", why)
            else:
                self._broke("gold", one.id, error)
            return
        answer = played.said.get("answer") if isinstance(played.said, dict) else None
        if isinstance(answer, str | int | float) and str(answer):
            self.answers[one.id] = str(answer)
        reward = played.reward
        assert reward
        self._judge("gold", one, reward, deviates=not reward.is_full)

    async def _play_gold(self, one: Task) -> _Played:
        async with self.instances.one(one, validation=True) as env:
            return _Played(await env.call_function("play_gold"), await rewards.of(env))

    def _broke(self, check: str, subject: str, error: AEnvError) -> None:
        """A check that could not end. Where the environment says that something is missing, it was not tried."""
        is_unready = isinstance(error, NotJudged) and error.outcome == Outcome.NOT_READY
        self._add(check, subject, "not tried" if is_unready else "failed", error.message)

    def _judge(self, kind: str, one: Task, reward: rewards.Reward, *, deviates: bool) -> None:
        """Exactly the declared exceptions deviate."""
        if reward.failed_check:
            return  # there is no number to judge, and the self-check says why
        if reward.outcome == Outcome.NOT_READY:
            self._add(kind, one.id, "not tried", reward.reason)
            return
        why = self.exceptions[kind].get(one.id)
        if deviates:
            self._add(
                kind, one.id, "known" if why else "failed", f"the reward is {reward}" + (f": {why}" if why else "")
            )
        elif why:
            self._add(
                kind, one.id, "failed", f"it is declared as an exception, and is none: the reward is {reward}"
            )
        else:
            self._add(kind, one.id, "ok", f"the reward is {reward}")
        ranged = _range(one.id, reward)
        if ranged.is_bad:
            self.report.add([ranged])
        else:
            self._once("reward", [_range("all", reward)])

    def _once(self, check: str, findings: Sequence[Finding]) -> None:
        """One line for what holds for every task."""
        known = {(finding.check, finding.subject) for finding in self.report.findings}
        self.report.add(f for f in findings if not f.is_bad and (check, f.subject) not in known)

    # The same twice.

    async def _determinism(self, one: Task | None) -> None:
        if one is None and not self.offer.tools:
            self._add("determinism", "environment", "not applicable", "it has no tools")
            return
        what = f"{'gold' if one and self.has_gold else 'scripted'} episode"
        try:
            first, second = [await self._episode(one) for _ in range(2)]
            _ready(first.reward)
        except AEnvError as error:
            self._broke("determinism", what, error)
            return
        difference = first.differs_from(second)
        self._add("determinism", what, "failed" if difference else "ok", difference)

    async def _replayed(self, one: Task) -> None:
        """The same seed, the same calls, the same results: of calls that are recorded, on another instance."""
        head = TrajectoryHead("", one.id, variables=one.variables, datasource=one.datasource)
        recorder = Recorder(Journal(), head, [])
        try:
            async with self.instances.one(one) as env:
                env.recorder = recorder
                await self._scripted(env, None)
            found = await replay.replay(self.instances, recorder.trajectory)
        except AEnvError as error:
            self._broke("determinism", f"replay of {one.id}", error)
            return
        status = "failed" if found.divergence else "ok" if found.calls else "not applicable"
        self._add("determinism", f"replay of {one.id}", status, found.told)

    async def _episode(self, one: Task | None) -> _Played:
        if one and self.has_gold:
            return await self._play_gold(one)
        async with self.instances.one(one) as env:
            return await self._scripted(env, one)

    async def _scripted(self, env: WatchedEnvironment, one: Task | None) -> _Played:
        """Calls that are the same every time; not of tools that say that they depend on the world outside."""
        random = Random(0)
        tools = [tool for tool in self.offer.tools if not (tool.get("annotations") or {}).get("openWorldHint")]
        said: list[Any] = []
        for _ in range(_STEPS if tools else 0):
            tool = random.choice(tools)
            arguments = samples.arguments(tool["inputSchema"], random)
            try:
                result = await env.call_tool(tool["name"], arguments)
                said.append([tool["name"], result.content, result.is_error])
            except ToolError as error:
                said.append([tool["name"], error.message, True])
        return _Played(said, await rewards.of(env) if one else None)

    async def _reset(self, one: Task | None) -> None:
        gold = one if self.has_gold else None
        try:
            async with self.instances.one(one, validation=gold is not None) as env:
                seeded = await _reset_takes_a_seed(env)
                rounds = []
                for _ in range(2):
                    begun = await env.reset(7) if seeded else await env.reset()
                    if gold:
                        played = _Played(await env.call_function("play_gold"), await rewards.of(env))
                    else:
                        played = await self._scripted(env, one)
                    _ready(played.reward)
                    rounds.append(_Played([begun, played.said], played.reward))
                kept = await self._kept(env, one, seeded=seeded) if gold else ""
        except NotFound as error:
            self._add("reset", "environment", "not applicable", error.message)
            return
        except AEnvError as error:
            self._broke("reset", "environment", error)
            return
        difference = rounds[0].differs_from(rounds[1]) or kept
        self._add("reset", "environment", "failed" if difference else "ok", difference)

    async def _kept(self, env: WatchedEnvironment, one: Task | None, *, seeded: bool) -> str:
        """What is wrong when a gold that was played before a reset is rewarded after it."""
        free = {finding.subject for finding in self.report.findings if finding.check == "empty" and finding.is_bad}
        if one is None or one.id in free or one.id in self.exceptions["empty"]:
            return ""
        await (env.reset(7) if seeded else env.reset())
        reward = await rewards.of(env)
        return f"after a reset the reward is still {reward}" if reward.is_full else ""

    # Cheating.

    async def _cheat(self, tasks: Sequence[Task]) -> None:
        honest = [one for one in tasks if one.id not in self.exceptions["empty"]]
        if not honest:
            self._add("cheats", "all", "not applicable", "doing nothing is rewarded in every task")
            return
        middle, last = len(honest) // 2, len(honest) - 1
        subjects = [honest[index] for index in sorted({0, middle, last})][:_CHEATED]
        attempts: list[tuple[Task, Cheat]] = []
        shell = cheats.shell_of(self.offer)
        for one in subjects:
            if shell:
                attempts += [(one, cheat) for cheat in cheats.generic(shell, _own_folder(self.report.environment))]
            attempts += [(one, cheat) for cheat in await self._declared(one)]
            await self._leaks(one)
        if not shell:
            self._add("cheats", "shell", "not applicable", "no tool runs commands")

        async def tried(attempt: tuple[Task, Cheat]) -> None:
            one, cheat = attempt
            try:
                found = await cheats.attempt(
                    self.instances, one, cheat, answer=self.answers.get(one.id), seals_code=self.has_gold
                )
            except AEnvError as error:
                self._broke("cheats", f"{cheat.kind}: {cheat.name} ({one.id})", error)
            else:
                self.report.add([found])

        await self._each(attempts, tried)

    async def _declared(self, one: Task) -> list[Cheat]:
        if not self.offer.has("list_cheats"):
            return []
        try:
            async with self.instances.one(one, validation=True) as env:
                return cheats.read(await env.call_function("list_cheats"))
        except AEnvError as error:
            self._broke("cheats", f"list_cheats ({one.id})", error)
            return []

    async def _leaks(self, one: Task) -> None:
        answer = self.answers.get(one.id)
        if not answer:
            return
        async with self.instances.one(one) as env:
            told = await env.call_function("get_task") if self.offer.has("get_task") else {}
            if answer not in str(told):  # a text that the task shows anyway is not a secret
                self.report.add(await cheats.leaks(env, self.offer, one, answer))


def validated(
    opened: AbstractAsyncContextManager[InstanceSource],
    wanted: TaskSelection,
    concurrency: int,
    *,
    determinism: bool = False,
) -> Report:
    """Open the place, and validate. KeyboardInterrupt when it was stopped, in order."""

    async def main() -> Report:
        async with opened as there:
            return await validate(there, wanted, concurrency, determinism=determinism)

    return locations.run(main)


async def validate(
    place: InstanceSource, wanted: TaskSelection, concurrency: int, *, determinism: bool = False
) -> Report:
    """The report about the environment at `place`; with `determinism` calls are replayed for every task."""
    report = Report(place.name, place.digest)
    async with TaskInstances(place) as instances:
        await Validation(instances, wanted, concurrency, report, determinism).run()
    order = list(dict.fromkeys(finding.check for finding in report.findings))
    report.findings.sort(key=lambda finding: (order.index(finding.check), finding.subject))
    return report


def _range(subject: str, reward: rewards.Reward) -> Finding:
    bad = reward.outcome == Outcome.ENV_ERROR
    return Finding("reward", subject, "failed" if bad else "ok", reward.reason if bad else "")


def _told(reward: rewards.Reward | None) -> Any:
    """What is compared: the whole answer of the reward function, or why there is none."""
    if reward is None or reward.outcome == Outcome.REWARD:
        return reward and reward.raw
    return [str(reward.outcome), reward.reason, reward.raw]


def _ready(reward: rewards.Reward | None) -> None:
    if reward and reward.outcome == Outcome.NOT_READY:
        raise NotJudged(reward.outcome, reward.reason)


async def _reset_takes_a_seed(env: WatchedEnvironment) -> bool:
    try:
        await env.reset(7)
    except InvalidRequest:
        await env.reset()
        return False
    return True


def _own_folder(environment: str) -> str:
    """Where the code of a built-in environment is on this host, which its instances may see."""
    folder = environment.partition("@")[0].replace("-", "_")
    return str(Path(__file__).parent.parent / "envs" / folder)
