"""Trajectories for people: a transcript of one, numbers of many, and where two differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from .capture.model_exchange import ModelExchange
from .comparison import first_difference, stable
from .statistics import summary
from .trajectory import AgentCall, Message, Step, Trajectory, said_calls

_LONG = 2_000  # characters of one text that a person reads


def transcript(trajectory: Trajectory, *, whole: bool = False) -> str:
    """What happened, step by step; long texts lose their middle unless the `whole` is asked for."""
    return "\n".join(_clean(line) for line in _lines(trajectory, 10**12 if whole else _LONG))


def _lines(trajectory: Trajectory, most: int) -> Iterator[str]:
    head, result = trajectory.head, trajectory.result
    run = result.run if result else None
    attempt = f", attempt {head.attempt}" if head.attempt else ""
    yield f"task {head.task}{attempt}, rollout {head.rollout}"
    if run:
        yield ", ".join(part for part in (run.environment, run.agent, run.model) if part)
    began = head.at or (trajectory.steps[0].at if trajectory.steps else 0.0)
    told: list[Step | ModelExchange] = [*trajectory.steps, *trajectory.exchanges]
    known: set[str] = set()
    for one in sorted(told, key=lambda one: one.at):
        yield ""
        when = f"+{max(one.at - began, 0.0):.1f} s" if one.at else ""
        if isinstance(one, Step):
            yield from _step(one, when, most)
        else:
            # Steps tell what the model was asked; what was captured alone has none.
            yield from _exchange(one, when, most, [] if trajectory.steps else _asked(one, known))
    yield ""
    if result is None:
        # What was captured alone, or comes from a file of others, was in no instance of ours.
        yield "not finished: under way, or its process ended before" if head.instance else "no result"
    elif result.reward is None:
        yield f"outcome {result.outcome}: {result.reason}"
    else:
        parts = "".join(f", {name} {value:g}" for name, value in result.parts.items())
        yield f"reward {result.reward:g}{parts}"


def _asked(exchange: ModelExchange, known: set[str]) -> list[Message]:
    """What the agent told the model beside what earlier exchanges show; `known` grows by it."""
    new = []
    for place, message in enumerate(exchange.prompt):
        key = f"{place} {json.dumps(message, sort_keys=True, default=str)}"
        if key not in known and message.get("role") != "assistant":
            new.append(message)
        known.add(key)
    return new


def _exchange(exchange: ModelExchange, when: str, most: int, asked: Sequence[Message]) -> Iterator[str]:
    usage = f", {exchange.usage[0]} + {exchange.usage[1]} tokens" if exchange.usage else ""
    yield f"[model {exchange.number}] {exchange.api}  {when}, {exchange.seconds * 1e3:.0f} ms{usage}"
    for message in asked:
        yield f"{message.get('role')}:"
        yield from _message(message, most)
    if asked:
        yield "assistant:"
    if exchange.error:
        yield _cut(f"error: {exchange.error}", most)
    yield from _message(exchange.said or {}, most)


def _step(step: Step, when: str, most: int) -> Iterator[str]:
    if step.call:
        kind = "" if step.call.kind == "tool" else f"{step.call.kind} "
        arguments = json.dumps(step.call.arguments, ensure_ascii=False)
        took = f"{when}, {step.seconds * 1e3:.0f} ms"
        yield f"[{step.index}] {kind}{step.call.name}({_cut(arguments, most)})  {took}"
        yield _cut(f"{'error: ' if step.call.error or step.call.is_error else ''}{step.call.text}", most)
        return
    message = step.message or {}
    yield f"[{step.index}] {message.get('role')}  {when}"
    yield from _message(message, most)
    if message.get("content_of_step"):
        yield f"(the answer of [{message['content_of_step']}])"


def _message(message: Message, most: int) -> Iterator[str]:
    content = message.get("content")
    if content:
        yield _cut(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), most)
    for call in said_calls(message):
        yield _cut(f"→ {call['function']['name']}({call['function']['arguments']})", most)


@dataclass(frozen=True)
class ToolUse:
    """How often a tool was called in some trajectories, with what success, and how long that took."""

    name: str
    calls: int
    errors: int
    mean_seconds: float
    median_seconds: float

    @property
    def cells(self) -> tuple[str, ...]:
        """Below TOOL_HEADERS."""
        times = (f"{self.mean_seconds * 1e3:.1f}", f"{self.median_seconds * 1e3:.1f}")
        return (self.name, str(self.calls), str(self.errors), *times)


TOOL_HEADERS = ("Tool", "Calls", "Errors", "Mean ms", "Median ms")


def tool_uses(trajectories: Sequence[Trajectory]) -> list[ToolUse]:
    """Of every tool and function that was called, those that were called most first."""
    found: dict[str, list[tuple[AgentCall, float]]] = defaultdict(list)
    for one in trajectories:
        for step in one.steps:
            if step.call:
                found[step.call.name].append((step.call, step.seconds))
    uses = [
        ToolUse(
            name,
            len(calls),
            sum(bool(call.error or call.is_error) for call, _ in calls),
            fmean(seconds for _, seconds in calls),
            median(seconds for _, seconds in calls),
        )
        for name, calls in found.items()
    ]
    return sorted(uses, key=lambda use: (-use.calls, use.name))


def numbers(trajectories: Sequence[Trajectory]) -> list[tuple[str, str]]:
    """Names and values: how many, their rewards, steps and tokens."""
    results = [one.result for one in trajectories if one.result]
    together = summary(results)
    steps = [len(one.calls) for one in trajectories]
    rows = [("trajectories", str(len(trajectories))), ("not finished", str(len(trajectories) - len(results)))]
    rows += [(outcome, str(count)) for outcome, count in together.counts.items() if count]
    if together.mean_reward is not None:
        rows.append(("mean reward", f"{together.mean_reward:.3f}"))
    if steps:
        rows.append(("calls, mean and most", f"{fmean(steps):.1f}, {max(steps)}"))
    sampled = sum(len(turn.tokens.ids) for one in trajectories for turn in one.turns if turn.tokens)
    if sampled:
        rows.append(("sampled tokens", str(sampled)))
    if together.cost is not None:
        rows.append(("cost", f"${together.cost:.4f}"))
    return rows


def difference(one: Trajectory, other: Trajectory) -> list[str]:
    """Where two rollouts part: the first step that differs, and how they end. Empty where they do not."""
    found = []
    for number, (left, right) in enumerate(zip(one.steps, other.steps, strict=False), 1):
        mine, theirs = (stable([step.message, step.call and step.call.as_json()]) for step in (left, right))
        if mine != theirs:
            found.append(f"step {number}: {first_difference(mine, theirs)}")
            break
    else:
        if len(one.steps) != len(other.steps):
            found.append(f"{len(one.steps)} steps and then {len(other.steps)}")
    ends = [str(each.result and (each.result.outcome, each.result.reward)) for each in (one, other)]
    if ends[0] != ends[1]:
        found.append(f"end: {_end(one)} and then {_end(other)}")
    return found


def _end(trajectory: Trajectory) -> str:
    result = trajectory.result
    if result is None:
        return "not finished"
    return str(result.outcome) if result.reward is None else f"reward {result.reward:g}"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n… {len(text) - most} characters …\n{text[-most // 2 :]}"


def _clean(line: str) -> str:
    """What a terminal may be shown of another's text."""
    return "".join(c for c in line if c.isprintable() or c in "\n\t")
