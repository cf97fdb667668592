"""`aenv top` on a terminal: a table that fills the screen, follows its size, and obeys keys.

Not here: what is measured, and a row's cells (`usage.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..base.errors import NetworkError, Unavailable
from . import output, usage
from .usage import Row

if TYPE_CHECKING:
    from ..base.models import Usage

_KEYS = {"c": "cpu", "m": "memory", "n": "calls", "a": "age", "e": "env", "s": "state"}
_COLUMNS = {
    "cpu": "CPU",
    "memory": "Memory",
    "calls": "Calls",
    "age": "Age",
    "env": "Environment",
    "state": "Status",
}
_NAMES = {"ID", "Environment", "Owner"}
_RIGHT = {"CPU", "Memory", "Calls", "Age", "TTL left"}
_HELP = "sort: c CPU, m memory, n calls, a age, e environment, s status; r reverse; q quit"
_AROUND = 3  # lines that are not rows: the summary, the headers, the help


class UsageScreen:
    """What is shown, and how it is sorted. Renders itself to the size that the terminal has."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.is_reversed = False
        self.problem = ""
        self._reply: Usage | None = None
        self._rows: list[Row] = []

    def tell(self, reply: Usage, before: Usage | None) -> None:
        """Show another measurement."""
        self._reply, self._rows, self.problem = reply, usage.rows(reply, before), ""

    def press(self, key: str) -> bool:
        """Do what a key is for; False when it ends the screen."""
        if key in _KEYS:
            self.order, self.is_reversed = _KEYS[key], False
        elif key == "r":
            self.is_reversed = not self.is_reversed
        return key != "q"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._reply is None:
            yield Text(self.problem or "asking the gateway …")
            return
        room = max(1, console.size.height - _AROUND)
        found = usage.ordered(self._rows, self.order, is_reversed=self.is_reversed)
        more = len(found) - room
        said = usage.summary(self._reply, found) + (f"; {more} more below" if more > 0 else "")
        yield Text(
            self.problem or said, style="red" if self.problem else "bold", no_wrap=True, overflow="ellipsis"
        )
        yield self._table(found[:room], options.max_width)
        yield Text(_HELP, style="dim", no_wrap=True, overflow="ellipsis")

    def _table(self, rows: Sequence[Row], width: int) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
        found = [usage.cells(row) for row in rows]
        columns = zip(usage.HEADERS, *found, strict=True)
        is_narrow = sum(max(map(len, column)) + 2 for column in columns) > width
        is_down = (self.order in usage.BY_NAME) is self.is_reversed
        for header in usage.HEADERS:
            mark = (" ▼" if is_down else " ▲") if header == _COLUMNS[self.order] else ""
            right = "right" if header in _RIGHT else "left"
            # On a narrow screen names give way: rich narrows what may wrap, and their texts do not. Ids are cut.
            is_whole = header not in _NAMES or (is_narrow and header == "ID")
            table.add_column(header + mark, no_wrap=is_whole, overflow="ellipsis", justify=right)  # type: ignore[arg-type]
        for row, (id, *others) in zip(rows, found, strict=True):
            # As text: a name may contain what rich takes for markup.
            cells = [output.plain(cell) for cell in (_cut(id) if is_narrow else id, *others)]
            texts = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells]
            table.add_row(*texts, style="dim" if row.data.frozen else "")
        return table


def _cut(id: str) -> str:
    """An id in which instances of one environment still differ; the environment stands beside it."""
    name, _, random = id.rpartition("-")
    return f"{name[:6]}…{random[:6]}"


async def watch(ask: Callable[[], Awaitable[Usage]], order: str, delay: float) -> int:
    """Show what `ask` gives every `delay` seconds, until q or a signal; the exit code.

    The terminal is as before when this returns or raises.
    """
    screen, loop = UsageScreen(order), asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    with _keys() as keyboard, Live(screen, screen=True, auto_refresh=False) as live:

        def pressed() -> None:
            for key in os.read(keyboard, 64).decode(errors="ignore").lower():
                if not screen.press(key):
                    end(0)
            live.refresh()

        if keyboard >= 0:
            loop.add_reader(keyboard, pressed)
        loop.add_signal_handler(signal.SIGWINCH, live.refresh)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, end, 128 + number)
        measuring = asyncio.ensure_future(_measure(ask, screen, live, delay))
        try:
            await asyncio.wait({measuring, ended}, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else await measuring
        finally:
            measuring.cancel()
            await asyncio.gather(measuring, return_exceptions=True)
            loop.remove_reader(keyboard)
            for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)


async def _measure(ask: Callable[[], Awaitable[Usage]], screen: UsageScreen, live: Live, delay: float) -> int:
    """Measure for ever. What fails at first fails; later it may be a gateway that starts again."""
    before: Usage | None = None
    while True:
        try:
            reply = await ask()
            screen.tell(reply, before)
            before = reply
        except (NetworkError, Unavailable) as error:
            if before is None:
                raise
            screen.problem = f"trying again: {' '.join(output.plain(error.message).split())}"
        live.refresh()
        await asyncio.sleep(delay)


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """The terminal's keyboard, key by key and not shown, without Ctrl-Z; -1 where stdin is not a terminal."""
    if not sys.stdin.isatty():
        yield -1
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    # A program that is suspended would leave its screen to the shell.
    changed = termios.tcgetattr(keyboard)
    changed[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(keyboard, termios.TCSANOW, changed)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)
