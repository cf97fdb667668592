"""Chats: a trajectory as one row of messages, tools, loss mask and reward; and what is made of such rows.

chat         every trajectory: messages, tools, a loss mask, tokens, reward and outcome
sft          those with a reward of at least so much: messages and tools
preferences  pairs of attempts at one task: prompt, chosen, rejected
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import InvalidRequest
from ...base.outcomes import Outcome
from ...client import formats
from ..results import RolloutResult, RunIdentity
from ..trajectory import Message, SampledTokens, Trajectory, TrajectoryHead, Turn

ChatRow = dict[str, Any]
"""One line of a file of chats."""
_PROMPT = ("system", "user", "developer")


def chat(trajectory: Trajectory) -> ChatRow:
    """A whole trajectory. `loss_mask` has a number for each message: 1 for what the agent said."""
    head, result, turns = trajectory.head, trajectory.result, trajectory.turns
    row: ChatRow = {"messages": [turn.message for turn in turns], "tools": tools(trajectory)}
    row["loss_mask"] = [int(turn.is_learned) for turn in turns]
    if any(turn.tokens for turn in turns):
        row["tokens"] = [turn.tokens.as_json() if turn.tokens else None for turn in turns]
    row |= {"rollout": head.rollout, "task": head.task}
    if head.attempt is not None:
        row["attempt"] = head.attempt
    row |= {"reward": None, "outcome": None, **trajectory.identity.as_json()}
    if result:
        row |= {"reward": result.reward, "outcome": str(result.outcome), "parts": dict(result.parts)}
        row |= {"attempts": result.attempts, "variables": dict(result.variables)}
        row |= {"error": result.reason} if result.reason else {}
    return row


def sft(trajectories: Iterable[Trajectory], min_reward: float = 1.0) -> Iterator[ChatRow]:
    """Conversations to imitate."""
    for one in trajectories:
        reward = one.result.reward if one.result else None
        if reward is not None and reward >= min_reward and any(turn.is_learned for turn in one.turns):
            row = chat(one)
            yield {name: row[name] for name in ("messages", "tools", "loss_mask", "task", "reward")}


def preferences(trajectories: Iterable[Trajectory], margin: float = 0.0) -> Iterator[ChatRow]:
    """Pairs from groups: the best attempt at a task with the worst, the second best with the second worst, and so
    on, as long as their rewards differ by more than `margin`.
    """
    groups: dict[tuple[str, str], list[Trajectory]] = {}
    for one in trajectories:
        if one.result and one.result.reward is not None and any(turn.is_learned for turn in one.turns):
            groups.setdefault((one.result.run.environment, one.head.task), []).append(one)
    for (environment, task), group in groups.items():
        ranked = sorted(group, key=_reward, reverse=True)
        for better, worse in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
            if _reward(better) - _reward(worse) <= margin:
                break
            prompt, chosen = _split(better.messages)
            other, rejected = _split(worse.messages)
            if prompt != other:
                continue  # not of the same question, so nothing is preferred
            yield {
                "prompt": prompt,
                "chosen": chosen,
                "rejected": rejected,
                "chosen_reward": _reward(better),
                "rejected_reward": _reward(worse),
                "tools": tools(better),
                "task": task,
                "environment": environment,
            }


def tools(trajectory: Trajectory) -> list[dict[str, Any]]:
    """As in OpenAI's chat completions: those that the model was told of, where that was captured."""
    captured = trajectory.captured if trajectory.own_messages is None else None
    return captured.tools if captured else formats.openai(trajectory.tools)


def _reward(trajectory: Trajectory) -> float:
    return (trajectory.result.reward if trajectory.result else None) or 0.0


def _split(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The messages before the agent's first, and the rest."""
    begin = next((n for n, one in enumerate(messages) if one.get("role") not in _PROMPT), len(messages))
    return list(messages[:begin]), list(messages[begin:])


def read(row: Mapping[str, Any], number: int) -> list[Trajectory]:
    """The trajectory of a row of `chat` or `sft`; both of a row of `preferences`. Errors name the field."""
    if "chosen" in row or "rejected" in row:
        prompt = _messages(row, "prompt") if "prompt" in row else []
        pairs = [(name, row.get(f"{name}_reward")) for name in ("chosen", "rejected")]
        return [
            _trajectory(
                {**row, "reward": reward, "attempt": n, "messages": [*prompt, *_messages(row, name)]},
                f"{number}-{name}",
            )
            for n, (name, reward) in enumerate(pairs, 1)
        ]
    return [_trajectory({**row, "messages": _messages(row, "messages")}, str(number))]


def _messages(row: Mapping[str, Any], name: str) -> list[Message]:
    found = row.get(name)
    if isinstance(found, str):
        found = [{"role": "user" if name == "prompt" else "assistant", "content": found}]
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("role"), str) for one in found
    ):
        raise InvalidRequest(f"field {name!r} must be a list of messages, each with a 'role'")
    return found


def _trajectory(row: Mapping[str, Any], fallback: str) -> Trajectory:
    reward = row.get("reward")
    if reward is not None and (not isinstance(reward, int | float) or isinstance(reward, bool)):
        raise InvalidRequest(f"field 'reward' must be a number, and is {reward!r}")
    rollout, task = str(row.get("rollout") or fallback), str(row.get("task") or fallback)
    for name, kind, values in (("parts", (int, float), "numbers"), ("variables", str, "texts")):
        told = row.get(name) or {}
        if not isinstance(told, dict) or not all(isinstance(value, kind) for value in told.values()):
            raise InvalidRequest(f"field {name!r} must be an object whose values are {values}")
    outcome = row.get("outcome") or (Outcome.REWARD if reward is not None else Outcome.INVALID)
    if outcome not in tuple(Outcome):
        raise InvalidRequest(f"field 'outcome' must be one of {', '.join(Outcome)}, and is {outcome!r}")
    attempt = row.get("attempt")
    result = RolloutResult(
        task,
        Outcome(outcome),
        None if reward is None else float(reward),
        parts=row.get("parts") or {},
        passed=None if reward is None else reward >= 1.0,
        reason=str(row.get("error") or ("" if reward is not None else "the file has no reward")),
        attempt=attempt,
        variables=row.get("variables") or {},
        run=RunIdentity.read(row),
        rollout=rollout,
    )
    tokens = row.get("tokens") or [None] * len(row["messages"])
    turns = [
        Turn(message, SampledTokens.read(sampled) if sampled else None)
        for message, sampled in zip(row["messages"], tokens, strict=False)
    ]
    head = TrajectoryHead(rollout, task, attempt, variables=result.variables)
    return Trajectory.of_turns(head, mcp_tools(row.get("tools") or []), turns, result)


def mcp_tools(tools: Any) -> list[dict[str, Any]]:
    """Tools of OpenAI's chat completions, as MCP describes them. InvalidRequest where they are none."""
    try:
        named = [tool["function"] for tool in tools]
        if not all(isinstance(one["name"], str) for one in named):
            raise TypeError
        return [
            {
                "name": one["name"],
                "description": one.get("description") or "",
                "inputSchema": one.get("parameters") or {"type": "object"},
            }
            for one in named
        ]
    except (TypeError, KeyError, AttributeError):
        raise InvalidRequest("field 'tools' must be a list of functions as in OpenAI's chat completions") from None
