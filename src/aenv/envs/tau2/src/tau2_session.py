"""The session of an instance: its settings, its task, and the episode that is played now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import tau2_judges
from tau2_domains import data_folder, source, user_specs
from tau2_episode import Episode
from tau2_evaluation import Judge, Verdict, evaluate
from tau2_prompts import agent_prompt
from tau2_settings import Settings, read
from tau2_toolkit import ToolSpec
from tau2_users import ModelUser, ScriptedUser, User
from tau2_world import Source, World

from aenv import Context, ToolError

Json = dict[str, Any]
T = TypeVar("T")


def open_session(context: Context) -> Session:
    """The instance's session. Nothing is read until the first call that needs it."""
    return Session(context.variables)


class Session:
    """One instance's task. Calls of one session run one after the other: an episode has one thread of talk."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.settings: Settings = read(variables)
        self._variables = variables
        self._lock = threading.Lock()
        self._episode: Episode | None = None
        self._judged: tuple[int, str | None, Verdict] | None = None

    @property
    def domain(self) -> str:
        return self.settings.domain

    @cached_property
    def folder(self) -> Path:
        return data_folder(self._variables)

    @property
    def source(self) -> Source:
        return source(self.folder, self.domain)

    @cached_property
    def task(self) -> Json:
        """The chosen task, or the first of the default split."""
        if not self.settings.task_id:
            first = self.source.first
            return first if _is_solo(first) or not self.settings.solo else self.tasks("")[0]
        try:
            task = self.source.find(self.settings.task_id)
        except KeyError:
            raise ToolError(
                f"TAU2_TASK_ID={self.settings.task_id!r} is not a task of {self.domain!r}; list_tasks names all"
            ) from None
        if self.settings.solo and not _is_solo(task):
            raise ToolError(
                f"task {task['id']!r} has no solo mode: it begins with messages of a user, or has no ticket"
            )
        return task

    def tasks(self, split: str) -> list[Json]:
        """The tasks of a split, in the order of the file; "" is the default split."""
        name = split or self.source.default_split
        if name is not None and name not in self.source.splits:
            known = ", ".join(self.source.splits)
            raise ToolError(f"split {name!r} is unknown; {self.domain!r} has {known}")
        wanted = None if name is None else set(self.source.splits[name])
        tasks = [task for task in self.source.tasks if wanted is None or task["id"] in wanted]
        return [task for task in tasks if _is_solo(task)] if self.settings.solo else tasks

    def with_episode(self, use: Callable[[Episode], T]) -> T:
        """Do something with the episode; it begins with the first use."""
        with self._lock:
            if self._episode is None:
                self._episode = self._begun()
            return use(self._episode)

    def start_over(self) -> None:
        with self._lock:
            self._episode = None
            self._judged = None

    def system_prompt(self, episode: Episode) -> str:
        ticket = (self.task.get("ticket") or "") if self.settings.solo else None
        return agent_prompt(episode.world.policy, ticket=ticket)

    def verdict(self, episode: Episode) -> Verdict:
        """What the episode is worth now; one that has not ended counts as if the agent stopped here."""
        known = self._judged
        if known and known[:2] == (len(episode.messages), episode.termination):
            return known[2]  # a model is not asked twice about the same
        end = episode.termination or "agent_stop"
        verdict = evaluate(self.source, self.task, episode.messages, end, self._judge(), solo=self.settings.solo)
        self._judged = (len(episode.messages), episode.termination, verdict)
        return verdict

    def _begun(self) -> Episode:
        world = self.source.open(solo=self.settings.solo)
        return Episode(self.task, world, self._user, max_steps=self.settings.max_steps)

    def _user(self, world: World) -> User:
        tools = self._user_tools()
        scenario = self.task["user_scenario"]
        if self.settings.user_model is None:
            return ScriptedUser(scenario, tools, patience=self.settings.patience)
        name = "simulation_guidelines_tools.md" if tools else "simulation_guidelines.md"
        guidelines = (self.folder / "user_simulator" / name).read_bytes().decode()
        return ModelUser(self.settings.user_model, guidelines, scenario, tools)

    def _user_tools(self) -> dict[str, ToolSpec]:
        chosen = self.task.get("user_tools")
        known = user_specs(self.domain)
        return known if chosen is None else {name: spec for name, spec in known.items() if name in chosen}

    def _judge(self) -> Judge:
        if self.settings.judge == "llm":
            assert self.settings.judge_model is not None, "settings without a model are refused"
            return tau2_judges.ModelJudge(self.settings.judge_model)
        return tau2_judges.deny if self.settings.judge == "deny" else tau2_judges.assume


def _is_solo(task: Json) -> bool:
    history = (task.get("initial_state") or {}).get("message_history") or []
    return bool(task.get("ticket")) and not any(message["role"] == "user" for message in history)
