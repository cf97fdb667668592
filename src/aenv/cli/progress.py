"""Progress, on stderr and on a terminal alone: a log gets none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..rollouts.live import creating, lines

__all__ = ["bar", "creating", "lines"]


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
