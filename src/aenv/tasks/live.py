"""Progress while episodes run: a bar, the pass rate, the cost and the time left; on a terminal alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .statistics import summary
from .tables import duration

OnResult = Callable[[Mapping[str, Any]], None]


@contextmanager
def shown(what: str, total: int) -> Iterator[OnResult]:
    """Show how far `total` episodes are; call what it gives with each result."""
    if not sys.stderr.isatty():
        yield lambda result: None
        return
    from rich import progress
    from rich.console import Console
    from rich.markup import escape

    parts = ("{task.description}", "{task.completed}/{task.total}", "{task.fields[state]}")
    begin, *rest = (progress.TextColumn(part) for part in parts)
    with progress.Progress(
        begin, progress.BarColumn(), *rest, console=Console(stderr=True), transient=True
    ) as bars:
        bar = bars.add_task(escape(what), total=total, state="")
        results: list[Mapping[str, Any]] = []
        started = time.monotonic()

        def update(result: Mapping[str, Any]) -> None:
            results.append(result)
            state = escape(_state(results, total, time.monotonic() - started))
            bars.update(bar, completed=len(results), state=state)

        yield update


def _state(results: list[Mapping[str, Any]], total: int, seconds: float) -> str:
    so_far = summary(results)
    left = seconds / len(results) * (total - len(results))
    parts = [f"{so_far.pass_rate:.0%} pass"]
    parts += [f"{so_far.counts['error']} errors"] if so_far.counts["error"] else []
    parts += [f"${so_far.cost:.2f}"] if so_far.cost is not None else []
    return ", ".join([*parts, f"{duration(left)} left"])
