"""`aenv top`: what `aenv ps` shows, live on a terminal, sorted by what you choose."""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import TYPE_CHECKING

import click

from .. import connection, output, parameters, usage
from ..connection import Gateway
from ..help_pages import documented
from ..output_formats import formats

if TYPE_CHECKING:
    from ...base.models import Usage
    from ...client.api import Api


@documented("top", examples=("aenv top", "aenv top --sort memory --delay 5s", "aenv top --count 1 --json"))
@usage.filters
@click.option(
    "--sort",
    type=click.Choice(usage.ORDERS),
    default="cpu",
    help="Column to sort by: numbers from the largest, names from A.",
)
@click.option(
    "-n",
    "--count",
    type=parameters.Number(1),
    help="Number of measurements to print.  [default: live on a terminal, else 1; with --json until Ctrl-C]",
)
@click.option("-d", "--delay", type=parameters.DURATION, default="2s", help="Time between two measurements.")
@formats(json_help="Print each measurement as a line of JSON.")
@connection.options
def command(
    gateway: Gateway, chosen: dict[str, str], sort: str, count: int | None, delay: float, as_json: bool
) -> int:
    """Show the instances that use the most CPU or memory, repeatedly.

    CPU is measured since the last measurement; the first time, since the instance started. On a terminal the table
    fills the screen and obeys keys: c, m, n, a, e and s sort by CPU, memory, calls, age, environment and status,
    r reverses, and q or Ctrl-C ends it.
    """
    is_live = sys.stdout.isatty() and count is None and not as_json

    async def watch(api: Api) -> int:
        if is_live:
            from ..usage_screen import watch as watch_live  # rich's part for screens, which a pipe does not need

            return await watch_live(lambda: usage.ask(api, chosen), sort, delay)
        await _print(api, chosen, sort, count if as_json else count or 1, delay, as_json)
        return 0

    with contextlib.suppress(KeyboardInterrupt):  # the way to leave it
        return gateway.run(watch)
    return 0


async def _print(
    api: Api, chosen: dict[str, str], sort: str, count: int | None, delay: float, as_json: bool
) -> None:
    import asyncio

    before: Usage | None = None
    for number in itertools.count(1):
        reply = await usage.ask(api, chosen)
        found = usage.ordered(usage.rows(reply, before), sort)
        if as_json:
            shown = [{**row.data.model_dump(mode="json"), "cpu_percent": row.cpu_percent} for row in found]
            output.line({**reply.model_dump(mode="json"), "instances": shown})
        else:
            if before:
                output.clear()
            usage.show(reply, found)
        if number == count:
            return
        before = reply
        await asyncio.sleep(delay)
