"""`aenv ps`: instances, and the resources that they use."""

from __future__ import annotations

from .. import connection, output, usage
from ..connection import Gateway
from ..help_pages import documented
from ..output_formats import formats


@documented("ps", examples=("aenv ps", "aenv ps --name my-env --json"))
@usage.filters
@connection.options
@formats()
def command(gateway: Gateway, chosen: dict[str, str], as_json: bool) -> None:
    """List running instances with CPU, memory, age and remaining time.

    CPU is the average since an instance started. 100 % is one processor.
    """
    reply = gateway.run(lambda api: usage.ask(api, chosen))
    if as_json:
        output.json(reply.model_dump(mode="json"))
    else:
        usage.show(reply, usage.rows(reply))
