"""Progress on stderr, on a terminal alone: what is going on, what instances wait for, how far episodes are."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..client.waiting import Told
    from .results import RolloutResult

_WIDE = 80  # columns of a terminal that has room for a name and a bar
_SPINNER = 2  # columns


@contextmanager
def lines(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is going on now, one line in the place of the last. A narrow terminal shows no more than that."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)

    def shown(line: str) -> str:
        text = " ".join(line.split())
        whole = what if not text else f"{what}: {text}" if console.width >= _WIDE else text
        return escape(_cut(whole, console.width - _SPINNER))

    with console.status(shown("")) as status:
        yield lambda line: status.update(shown(line))


@asynccontextmanager
async def creating(what: str) -> AsyncIterator[None]:
    """Show what the gateway is at while instances are created in the block: requirements, a root, a queue."""
    if not sys.stderr.isatty():
        yield
        return
    from ..client import waiting

    with lines(what) as show:
        async with waiting.looking(lambda told: show(_step(told))):
            yield


@asynccontextmanager
async def shown(
    what: str, total: int, before: Sequence[RolloutResult] = ()
) -> AsyncIterator[Callable[[RolloutResult], None]]:
    """Show how far `total` episodes are, of which some were played before, and what instances for them wait for.

    Call what it gives with each result.
    """
    if not sys.stderr.isatty():
        yield lambda result: None
        return
    from rich import progress
    from rich.console import Console
    from rich.markup import escape
    from rich.text import Text

    from ..client import waiting

    class Bars(progress.Progress):
        step = ""

        def get_renderables(self) -> Iterable[RenderableType]:
            yield from super().get_renderables()
            if self.step:
                yield Text(_cut(self.step, self.console.width), no_wrap=True)

    parts = ("{task.description}", "{task.completed}/{task.total}", "{task.fields[state]}")
    begin, *rest = (progress.TextColumn(part) for part in parts)
    console = Console(stderr=True)
    narrow = console.width < _WIDE  # the numbers count for more than the name
    columns = rest if narrow else [begin, progress.BarColumn(), *rest]
    with Bars(*columns, console=console, transient=True) as bars:
        results = list(before)
        bar = bars.add_task(escape(what), total=total, completed=len(results), state="")
        started = time.monotonic()

        def update(result: RolloutResult) -> None:
            results.append(result)
            each = (time.monotonic() - started) / (len(results) - len(before))
            state = escape(_state(results, each * (total - len(results))))
            bars.update(bar, completed=len(results), state=state)

        def wait(told: Told) -> None:
            several = f"{told.total} instances: " if told.total > 1 else ""
            bars.step = several + told.step if told.step else ""

        async with waiting.looking(wait):
            yield update


def counted(*, passed: bool) -> RolloutResult:
    """Something other than a rollout, as one that passed or not, for a bar."""
    from ..base.outcomes import Outcome
    from .results import RolloutResult

    return RolloutResult("", Outcome.REWARD, 0.0, passed=passed)


def _step(told: Told) -> str:
    """What the slowest instance waits for, and where there are several, how many are ready."""
    return f"{told.ready} of {told.total} ready; {told.step}".rstrip("; ") if told.total > 1 else told.step


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _state(results: list[RolloutResult], left: float) -> str:
    from .statistics import summary
    from .tables import duration

    so_far = summary(results)
    parts = [f"{so_far.pass_rate:.0%} pass"] if so_far.pass_rate is not None else []
    parts += [f"{so_far.tasks - so_far.judged} not judged"] if so_far.tasks > so_far.judged else []
    parts += [f"${so_far.cost:.2f}"] if so_far.cost is not None else []
    return ", ".join([*parts, f"{duration(left)} left"])
