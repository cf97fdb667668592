"""ATIF, the Agent Trajectory Interchange Format of Harbor: version 1.8 is written, all 1.x are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ... import __version__
from ...base import wire
from ...base.errors import InvalidRequest
from ...base.outcomes import Outcome
from .. import bounded_json
from ..results import RolloutResult, RunIdentity, TokenCount
from ..trajectory import Message, SampledTokens, Trajectory, TrajectoryHead, Turn
from . import chats
from .chats import mcp_tools

VERSION = "ATIF-v1.8"
_SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


def document(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as one document of ATIF. What it has no field for is in `extra`."""
    head, result = trajectory.head, trajectory.result
    run = trajectory.identity
    agent: dict[str, Any] = {"name": run.agent or "agent", "version": __version__}
    if run.model:
        agent["model_name"] = run.model
    if tools := chats.tools(trajectory):
        agent["tool_definitions"] = tools
    steps = list(_steps(trajectory.turns))
    extra: dict[str, Any] = {"task": head.task, "attempts": head.attempts, **run.as_json()}
    extra |= {"attempt": head.attempt} if head.attempt is not None else {}
    if result:
        extra |= {"outcome": str(result.outcome), "reward": result.reward, "parts": dict(result.parts)}
        extra |= {"variables": dict(result.variables), "error": result.reason}
    return {
        "schema_version": VERSION,
        "session_id": head.rollout,
        "trajectory_id": head.rollout,
        "agent": agent,
        "steps": steps or [{"step_id": 1, "source": "system", "message": ""}],
        "final_metrics": _final(result, len(steps)),
        "extra": extra,
    }


def _steps(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """A step for each message; answers of tools are the observation of the step that asked for them."""
    number, current = 0, None
    for turn in turns:
        message = turn.message
        if message.get("role") == "tool" and current is not None:
            asked = {call["tool_call_id"] for call in current.get("tool_calls", [])}
            answer: dict[str, Any] = {"content": _text(message.get("content"))}
            if message.get("tool_call_id") in asked:
                answer["source_call_id"] = message["tool_call_id"]
            current.setdefault("observation", {"results": []})["results"].append(answer)
            continue
        if current is not None:
            yield current
        number += 1
        current = _step(number, turn)
    if current is not None:
        yield current


def _step(number: int, turn: Turn) -> dict[str, Any]:
    message = turn.message
    source = _SOURCES.get(str(message.get("role")), "system")
    step: dict[str, Any] = {"step_id": number, "source": source, "message": _text(message.get("content"))}
    if turn.at:
        step["timestamp"] = wire.timestamp(turn.at)
    if source != "agent":
        return step
    if message.get("reasoning_content"):
        step["reasoning_content"] = str(message["reasoning_content"])
    calls = [
        {
            "tool_call_id": str(call.get("id") or f"call_{number}_{index}"),
            "function_name": str((call.get("function") or {}).get("name") or ""),
            "arguments": _arguments((call.get("function") or {}).get("arguments")),
        }
        for index, call in enumerate(message.get("tool_calls") or [])
    ]
    if calls:
        step["tool_calls"] = calls
    if turn.tokens:
        names = {"completion_token_ids": "ids", "logprobs": "logprobs", "prompt_token_ids": "prompt_ids"}
        known = turn.tokens.as_json()
        step["metrics"] = {theirs: known[ours] for theirs, ours in names.items() if ours in known}
    return step


def _final(result: RolloutResult | None, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {"total_steps": max(steps, 1)}
    if result and result.tokens:
        found |= {"total_prompt_tokens": result.tokens.read, "total_completion_tokens": result.tokens.written}
    if result and result.cost is not None:
        found["total_cost_usd"] = result.cost
    return found


def read(found: Any) -> Trajectory:
    """The trajectory in a document of ATIF 1.x. InvalidRequest names the field that is wrong."""
    if not isinstance(found, dict) or not str(found.get("schema_version")).startswith("ATIF-v1."):
        raise InvalidRequest("field 'schema_version' must be ATIF-v1.0 to ATIF-v1.8")
    steps, agent, extra = found.get("steps"), found.get("agent"), found.get("extra") or {}
    if not isinstance(steps, list) or not isinstance(agent, dict):
        raise InvalidRequest("fields 'steps' and 'agent' must be a list and an object")
    rollout = str(found.get("trajectory_id") or found.get("session_id") or "1")
    reward, final = extra.get("reward"), found.get("final_metrics") or {}
    outcome = extra.get("outcome")
    known = (
        Outcome(outcome)
        if outcome in tuple(Outcome)
        else Outcome.REWARD
        if reward is not None
        else Outcome.INVALID
    )
    tokens = final.get("total_prompt_tokens"), final.get("total_completion_tokens")
    result = RolloutResult(
        str(extra.get("task") or rollout),
        known,
        None if reward is None else float(reward),
        parts=extra.get("parts") or {},
        passed=None if reward is None else reward >= 1.0,
        reason=str(extra.get("error") or ("" if reward is not None else "the file has no reward")),
        attempt=extra.get("attempt"),
        attempts=extra.get("attempts") or 1,
        tokens=TokenCount(tokens[0] or 0, tokens[1] or 0) if any(tokens) else None,
        cost=final.get("total_cost_usd"),
        variables=extra.get("variables") or {},
        run=RunIdentity.read({**extra, "agent": agent.get("name"), "model": agent.get("model_name")}),
        rollout=rollout,
    )
    turns = [turn for step in steps for turn in _turns(step)]
    head = TrajectoryHead(rollout, result.task, result.attempt, result.attempts, variables=result.variables)
    return Trajectory.of_turns(head, mcp_tools(agent.get("tool_definitions") or []), turns, result)


def _turns(step: Any) -> Iterator[Turn]:
    if not isinstance(step, dict) or step.get("source") not in ("system", "user", "agent"):
        raise InvalidRequest("each of 'steps' must be an object with a 'source' of system, user or agent")
    if step.get("is_copied_context"):
        return  # it was said, and learned, before
    at = datetime.fromisoformat(step["timestamp"]).timestamp() if step.get("timestamp") else 0.0
    if step["source"] != "agent":
        yield Turn({"role": step["source"], "content": _text(step.get("message"))}, None, at)
    else:
        yield Turn(_assistant(step), _sampled(step.get("metrics") or {}), at)
    for answer in (step.get("observation") or {}).get("results") or []:
        said: Message = {"role": "tool", "content": _text(answer.get("content"))}
        yield Turn({**said, "tool_call_id": answer.get("source_call_id") or ""}, None, at)


def _assistant(step: Mapping[str, Any]) -> Message:
    message: Message = {"role": "assistant", "content": _text(step.get("message")) or None}
    if step.get("reasoning_content"):
        message["reasoning_content"] = step["reasoning_content"]
    calls = [
        {
            "id": call["tool_call_id"],
            "type": "function",
            "function": {
                "name": call["function_name"],
                "arguments": json.dumps(call.get("arguments") or {}, ensure_ascii=False),
            },
        }
        for call in step.get("tool_calls") or []
    ]
    return {**message, "tool_calls": calls} if calls else message


def _sampled(metrics: Mapping[str, Any]) -> SampledTokens | None:
    parts = [metrics.get(name) or () for name in ("completion_token_ids", "logprobs", "prompt_token_ids")]
    return SampledTokens(*parts) if any(parts) else None


def _arguments(text: Any) -> dict[str, Any]:
    try:
        found = bounded_json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {"text": text}  # what a model wrote in place of JSON
    return found if isinstance(found, dict) else {"value": found}


def _text(content: Any) -> str:
    """Of a text, or of parts, the texts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
