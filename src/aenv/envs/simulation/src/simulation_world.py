"""A world in play: its state, the steps that were made, and the check of the goal.

The script or model that plays it only proposes changes; they count when the scenario allows them.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from simulation_scenario import Scenario
from simulation_schema import Wrong, check, is_below, read
from simulation_script import changed, holds, play

from aenv import NotJudged, ToolError

_REMEMBERED = 12  # turns that a model is told again
State = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """What the agent does, and the world in which it does it."""

    action: str
    arguments: dict[str, Any]
    state: State
    before: list[dict[str, Any]]
    """The turns before this one, oldest first: action, arguments, observation."""
    attempt: Callable[[dict[str, Any]], State]
    """The state after these changes. Wrong, with the reason, when they are not allowed."""


class Player(Protocol):
    """Who decides what an action does."""

    name: str

    async def play(self, turn: Turn) -> tuple[str, State]:
        """What the agent observes, and the new state. ToolError, or NotJudged, when there is no answer."""
        ...


class Script:
    """Plays by the scenario's rules."""

    name = "script"

    def __init__(self, scenario: Scenario) -> None:
        if not scenario.is_scripted:
            lacking = [name for name, action in scenario.actions.items() if not action.script]
            why = (
                f"scenario {scenario.name!r} has no script for {', '.join(lacking)}; set SIMULATION_LLM to a model"
            )
            raise NotJudged("not_ready", why)
        self._scenario = scenario

    async def play(self, turn: Turn) -> tuple[str, State]:
        rules = self._scenario.actions[turn.action].script
        try:
            words, changes = play(rules, turn.state, turn.arguments)
            return words, turn.attempt(changes)
        except (Wrong, TypeError) as error:
            raise ToolError(f"scenario {self._scenario.name!r}, action {turn.action!r}: {error}") from None


class World:
    """One episode."""

    def __init__(self, scenario: Scenario, player: Player) -> None:
        self.scenario = scenario
        self._player = player
        self._state: State = copy.deepcopy(scenario.state)
        self._turns: list[dict[str, Any]] = []
        self._is_finished = False
        self._failure: ToolError | NotJudged | None = None
        self._turn = asyncio.Lock()

    @property
    def is_done(self) -> bool:
        return self._is_finished or len(self._turns) >= self.scenario.max_steps

    async def act(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make a step; one after the other, when several are asked for. A step that fails changes nothing."""
        async with self._turn:
            return await self._act(action, arguments)

    async def _act(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.is_done:
            why = "it was finished" if self._is_finished else f"all {self.scenario.max_steps} steps are used up"
            raise ToolError(f"the episode has ended: {why}")
        given = self.scenario.arguments(action, arguments)
        turn = Turn(action, given, copy.deepcopy(self._state), self._turns[-_REMEMBERED:], self._attempt(action))
        try:
            words, self._state = await self._player.play(turn)
        except (ToolError, NotJudged) as error:
            self._failure = error
            raise
        self._failure = None
        self._turns.append({"action": action, "arguments": given, "observation": words})
        return {"observation": words, **self._progress()}

    def observe(self) -> dict[str, Any]:
        """What the agent sees without doing anything."""
        seen = {path: read(self._state, path) for path in self.scenario.visible}
        last = self._turns[-1]["observation"] if self._turns else self.scenario.opening
        actions = {
            name: {
                "description": action.description,
                "arguments": {key: one.told() for key, one in action.parameters.items()},
            }
            for name, action in self.scenario.actions.items()
        }
        return {"observation": last, "visible": seen, "actions": actions, **self._progress()}

    def finish(self) -> dict[str, Any]:
        """No more steps."""
        self._is_finished = True
        return self._progress()

    def verdict(self) -> dict[str, Any]:
        """1.0 when the goal holds for the state as it is; nothing that was said counts."""
        is_reached = holds(self.scenario.goal, self._state, {})
        verdict: dict[str, Any] = {"reward": float(is_reached), "goal_reached": is_reached}
        verdict |= {"finished": self._is_finished, "steps": len(self._turns), "world": self._player.name}
        if self._failure and not is_reached:  # the agent could not go on, which is not its fault
            outcome = self._failure.outcome if isinstance(self._failure, NotJudged) else "invalid"
            raise NotJudged(outcome, f"the world did not answer: {self._failure.message}", verdict)
        return verdict

    def _attempt(self, action: str) -> Callable[[dict[str, Any]], State]:
        def attempt(changes: dict[str, Any]) -> State:
            places = self.scenario.actions[action].may_change
            outside = [path for path in changes if not is_below(path, places)]
            if outside:
                raise Wrong(
                    f"{outside[0]!r} may not change by {action!r}; only {', '.join(places) or 'nothing'} may"
                )
            after = copy.deepcopy(self._state)
            changed(after, copy.deepcopy(changes))
            check(self.scenario.schema_, after, "state")
            return after

        return attempt

    def _progress(self) -> dict[str, Any]:
        return {"done": self.is_done, "step": len(self._turns), "max_steps": self.scenario.max_steps}
