"""Progress bars, on a terminal alone: a log gets none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show how many bytes have arrived; call what it gives with their number so far."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich import progress
    from rich.console import Console

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.DownloadColumn())
    with progress.Progress(
        *columns, progress.TransferSpeedColumn(), console=Console(stderr=True), transient=True
    ) as shown:
        task = shown.add_task(what, total=total_bytes)
        yield lambda done: shown.update(task, completed=done)


@contextmanager
def lines(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is going on now, one line in the place of the last."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(what)) as status:
        yield lambda line: status.update(escape(f"{what}: {line.strip()}"[:100]))
