"""What an evaluation has found, for people: a table, what was not judged and why, and what it took."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from ..base.outcomes import Outcome
from . import attempts
from .results import RolloutResult
from .statistics import summary
from .tables import columns

_SHOWN = 20  # reasons that a person reads
_NAMED = 3  # tasks that are named beside a reason
_IN_VAIN = (Outcome.NOT_READY, Outcome.ENV_ERROR, Outcome.AGENT_ERROR, Outcome.INFRA_ERROR, Outcome.TIMEOUT)


def failed(found: Sequence[RolloutResult]) -> bool:
    """Whether an episode broke off or could not begin, or no task was judged at all."""
    return any(one.outcome in _IN_VAIN for one in found) or not summary(found).judged


def table(found: Sequence[RolloutResult], width: int | None = None) -> str:
    """The results as a table, each split where there are several; below it what has no number, with the reason.

    Where the table is wider than `width`, it is written as lines. Several attempts have a table of their own.
    """
    splits = sorted({one.split for one in found})
    if any(one.attempt is not None for one in found):
        groups = {split or "-": [o for o in found if o.split == split] for split in splits}
        parts = [_measured(name, group) for name, group in groups.items()] if len(groups) > 1 else []
        return "\n".join(["\n\n".join([*parts, _measured("all", found)]), *_not_judged(found)])
    rows: list[tuple[str, ...]] = [
        ("split", "tasks", "judged", "pass", "fail", "pass rate", "95 % interval", "mean reward")
    ]
    if len(splits) > 1:
        rows += [_row(split or "-", [o for o in found if o.split == split]) for split in splits]
    rows.append(_row("all", found))
    wide = columns(rows)
    if width and max(map(len, wide.splitlines())) > width:
        wide = "\n".join(_lines(dict(zip(rows[0], row, strict=True))) for row in rows[1:])
    return "\n".join([wide, *_not_judged(found)])


def _measured(name: str, found: Sequence[RolloutResult]) -> str:
    """pass@k and the mean reward of repeated tasks, at most 50 columns wide."""
    rows = [("measure", "value", "95 % interval", "left out")]
    for one in attempts.measures(found):
        form = ".3f" if one.name == "mean reward" else ".1%"
        value = "-" if one.value is None else format(one.value, form)
        interval = " to ".join(format(end, form) for end in one.interval) if one.interval else "-"
        rows.append((one.name, value, interval, str(one.left_out)))
    tasks, judged = len(attempts.by_task(found)), summary(found).judged
    return f"{name}: {tasks} tasks, {len(found)} attempts, {judged} judged\n{columns(rows)}"


def _lines(row: Mapping[str, str]) -> str:
    counts = ", ".join(f"{row[name]} {name}" for name in ("tasks", "judged", "pass", "fail"))
    rate = f"{row['pass rate']} ({row['95 % interval']})"
    return f"{row['split']}: {counts}\n  pass rate {rate}\n  mean reward {row['mean reward']}"


def _row(name: str, found: Sequence[RolloutResult]) -> tuple[str, ...]:
    all_of = summary(found)
    counts = (all_of.tasks, all_of.judged, all_of.passed, all_of.judged - all_of.passed)
    if all_of.pass_rate is None or all_of.mean_reward is None:
        return (name, *map(str, counts), "-", "-", "-")
    low, high = all_of.interval
    rate, interval = f"{all_of.pass_rate:.1%}", f"{low:.1%} to {high:.1%}"
    return (name, *map(str, counts), rate, interval, f"{all_of.mean_reward:.3f}")


def _not_judged(found: Sequence[RolloutResult]) -> list[str]:
    """A line for each outcome without a number and each reason, with how many episodes ended so."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in found:
        if one.outcome != Outcome.REWARD:
            reason = " ".join(one.reason.split())
            reasons.setdefault((one.outcome, reason), []).append(one.task)
    if not reasons:
        return []
    counts = {outcome: count for outcome, count in summary(found).counts.items() if count}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if outcome != Outcome.REWARD)
    lines = ["", f"not judged: {told}"]
    for (outcome, reason), tasks in list(reasons.items())[:_SHOWN]:
        names = list(dict.fromkeys(tasks))  # several attempts may have ended alike
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(_cut(f"  {outcome} {', '.join(names[:_NAMED])}{more}: {reason}"))
    if len(reasons) > _SHOWN:
        lines.append(f"  {len(reasons) - _SHOWN} more reasons; the file of results has them all")
    return lines


def _cut(line: str) -> str:
    """A line of at most three rows of the terminal: what an environment said may be a whole log."""
    most = 3 * shutil.get_terminal_size((100, 24)).columns
    clean = "".join(c for c in line if c.isprintable())
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def spent(found: Sequence[RolloutResult], seconds: float) -> str:
    """What it took, in a line."""
    tokens = [one.tokens for one in found if one.tokens]
    all_of = summary(found)
    tasks = len(attempts.by_task(found))
    count = f"{tasks} task{'' if tasks == 1 else 's'}"
    if tasks != len(found):
        count = f"{len(found)} attempts at {count}"
    parts = [f"{count} in {seconds:.1f} s"]
    if tokens:
        parts.append(f"{sum(t.read for t in tokens)} tokens in, {sum(t.written for t in tokens)} out")
    if all_of.cost is not None:
        parts.append(f"${all_of.cost:.4f}")
    return ", ".join(parts)
