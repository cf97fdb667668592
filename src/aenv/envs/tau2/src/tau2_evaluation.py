"""Rewards: what an episode has reached, compared with what its task asks for.

Each part is 0 or 1; the reward is the product of those that the task's `reward_basis` names. Not here: who judges
assertions in plain language (`tau2_judges.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tau2_toolkit import database_hash
from tau2_world import Source, World, calls_of

Json = dict[str, Any]
Judge = Callable[[list[Json], list[str]], bool]
"""Whether all assertions hold of a conversation."""

DEFAULT_BASIS = ("DB", "COMMUNICATE")
JUDGED_ENDS = ("agent_stop", "user_stop")


@dataclass(frozen=True)
class Verdict:
    """A reward, and how it came about. `error` says why judging broke off; the reward is 0 then."""

    reward: float
    parts: dict[str, float] = field(default_factory=dict)
    is_judged: bool = False
    """Whether an assertion in plain language had to be judged."""
    error: str | None = None


def evaluate(
    source: Source, task: Json, messages: list[Json], termination: str, judge: Judge, *, solo: bool
) -> Verdict:
    """The verdict on an episode. `messages` begin with the task's own history."""
    if termination not in JUDGED_ENDS:
        return Verdict(0.0)
    criteria = task.get("evaluation_criteria")
    if not criteria:
        return Verdict(1.0)
    basis = criteria.get("reward_basis") or DEFAULT_BASIS
    found = _communicated(criteria, messages)
    try:
        found |= _state(source, task, criteria, messages, solo) | _actions(criteria, messages)
    except Exception as error:  # boundary: a task's assertion raises when what it asks about is not there
        return Verdict(0.0, error=f"{type(error).__name__}: {error}")
    assertions = criteria.get("nl_assertions") or []
    is_judged = "NL_ASSERTION" in basis and bool(assertions)
    found["NL_ASSERTION"] = float(judge(messages, assertions)) if is_judged else 1.0
    parts = {name: found[name] for name in basis}
    reward = 1.0
    for value in parts.values():
        reward *= value
    return Verdict(reward, parts, is_judged)


def gold_world(source: Source, task: Json) -> World:
    """The world after the gold actions. What fails in it is left out, and nothing is synced between them."""
    world = source.open(solo=False)
    initial = task.get("initial_state") or {}
    world.set_state(initial, initial.get("message_history") or [])
    for action in (task.get("evaluation_criteria") or {}).get("actions") or []:
        toolkit = world.user if action.get("requestor") == "user" else world.agent
        try:
            assert toolkit is not None, "the domain has no user side"
            toolkit.call(action["name"], action["arguments"])
        except Exception:  # boundary: some gold calls fail, and are meant to
            continue
    return world


def hashes(world: World) -> tuple[str, str | None]:
    """Of the agent's database, and of the user's where there is one."""
    return database_hash(world.agent.db), database_hash(world.user.db) if world.user else None


def _state(source: Source, task: Json, criteria: Json, messages: list[Json], solo: bool) -> dict[str, float]:
    """The databases, and the functions that a task wants called on the world that the episode has made."""
    if criteria.get("actions") is None and criteria.get("env_assertions") is None:
        return {"DB": 1.0, "ENV_ASSERTION": 1.0}
    world = source.open(solo=solo)
    world.set_state(task.get("initial_state"), messages)
    is_same = "DB" not in (criteria.get("reward_basis") or DEFAULT_BASIS) or (
        hashes(world) == hashes(gold_world(source, task))
    )
    is_so = [_holds(world, assertion) for assertion in criteria.get("env_assertions") or []]
    return {"DB": float(is_same), "ENV_ASSERTION": float(all(is_so))}


def _holds(world: World, assertion: Json) -> bool:
    result = world.run_function(assertion["env_type"], assertion["func_name"], assertion.get("arguments") or {})
    if not isinstance(result, bool):
        raise TypeError(f"assertion {assertion['func_name']!r} gave {result!r}, neither true nor false")
    return result is bool(assertion.get("assert_value", True))


def _actions(criteria: Json, messages: list[Json]) -> dict[str, float]:
    made = [call for call, _ in calls_of(messages)]
    wanted = criteria.get("actions") or []
    return {"ACTION": float(all(any(_matches(gold, call) for call in made) for gold in wanted))}


def _matches(gold: Json, call: Json) -> bool:
    if gold["name"] != call["name"]:
        return False
    compared = gold.get("compare_args")
    keys = call["arguments"].keys() if compared is None else compared
    return bool(_restricted(gold["arguments"], keys) == _restricted(call["arguments"], keys))


def _restricted(arguments: Json, keys: Any) -> Json:
    return {key: value for key, value in arguments.items() if key in keys}


def _communicated(criteria: Json, messages: list[Json]) -> dict[str, float]:
    said = [
        message["content"] for message in messages if message["role"] == "assistant" and message.get("content")
    ]
    texts = [text.lower().replace(",", "") for text in said if text.strip()]
    wanted = criteria.get("communicate_info") or []
    return {"COMMUNICATE": float(all(any(info.lower() in text for text in texts) for info in wanted))}
