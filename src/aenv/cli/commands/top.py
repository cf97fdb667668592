"""`aenv top`: the same as `aenv ps`, repeated, the instance that uses most first."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .. import connection, output, parameters, usage
from ..connection import Gateway
from ..help_pages import documented
from ..output_formats import formats
from ..usage import Row

if TYPE_CHECKING:
    from ...base.models import Usage
    from ...client.api import Api

_ORDERS: dict[str, Callable[[Row], float]] = {
    "cpu": lambda row: row.cpu_percent or 0.0,
    "memory": lambda row: row.data.memory_bytes or 0,
    "age": lambda row: row.age,
}


@documented("top", examples=("aenv top", "aenv top --sort memory --delay 5s", "aenv top --count 1 --json"))
@usage.filters
@click.option("--sort", type=click.Choice(list(_ORDERS)), default="cpu", help="Column to sort by, largest first.")
@click.option("-n", "--count", type=parameters.Number(1), help="Number of measurements.  [default: until Ctrl-C]")
@click.option("-d", "--delay", type=parameters.DURATION, default="2s", help="Time between two measurements.")
@formats(json_help="Print each measurement as a line of JSON.")
@connection.options
def command(
    gateway: Gateway, chosen: dict[str, str], sort: str, count: int | None, delay: float, as_json: bool
) -> None:
    """Show the instances that use the most CPU or memory, repeatedly.

    CPU is measured since the last measurement; the first time, since the instance started.
    """

    async def watch(api: Api) -> None:
        import asyncio

        before: Usage | None = None
        for number in itertools.count(1):
            reply = await usage.ask(api, chosen)
            found = sorted(usage.rows(reply, before), key=_ORDERS[sort], reverse=True)
            if as_json:
                shown = [{**row.data.model_dump(mode="json"), "cpu_percent": row.cpu_percent} for row in found]
                output.line({**reply.model_dump(mode="json"), "instances": shown})
            else:
                if before or count is None:
                    output.clear()
                usage.show(reply, found)
            if number == count:
                return
            before = reply
            await asyncio.sleep(delay)

    with contextlib.suppress(KeyboardInterrupt):  # the way to leave it
        gateway.run(watch)
