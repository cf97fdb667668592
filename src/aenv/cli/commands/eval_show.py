"""`aenv eval show`: a file of results as a table, and as a chart."""

from __future__ import annotations

from pathlib import Path

import click

from .. import output
from ..help_pages import documented
from ..parameters import FILE, PICTURE


@documented("show", examples=("aenv eval show results.jsonl", "aenv eval show results.jsonl --out chart.svg"))
@click.argument("file", type=FILE)
@PICTURE
def command(file: Path, out: Path | None) -> None:
    """Show the results of an evaluation, for each task and in total.

    The best tasks come first, those without a reward last. Steps and seconds are means over the attempts.
    """
    from ...rollouts import journal, overview, pictures, summaries

    found = journal.results(file)
    rows, heading = overview.rows(found), overview.heading(found) or file.name
    output.talk(heading)
    output.table(overview.HEADERS, [row.cells for row in rows])
    output.data(f"\n{summaries.table(found, output.width())}")
    if out:
        pictures.write(out, f"{heading}: rewards by task", rows)
        output.talk(f"chart: {out}")
