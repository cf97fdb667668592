"""`aenv eval show`: a file of results as a table, and as a chart."""

from __future__ import annotations

from pathlib import Path

import click

from .. import output
from ..help_pages import documented

_PICTURES = (".svg", ".png")
_FILE = click.Path(path_type=Path, dir_okay=False)


@documented("show", examples=("aenv eval show results.jsonl", "aenv eval show results.jsonl --out chart.svg"))
@click.argument("file", type=_FILE)
@click.option(
    "--out", type=_FILE, metavar="PICTURE", help="Draw a chart of the rewards into this file, SVG or PNG."
)
def command(file: Path, out: Path | None) -> None:
    """Show the results of an evaluation, for each task and in total.

    The best tasks come first, those without a reward last. Steps and seconds are means over the attempts.
    """
    from ...rollouts import journal, overview, pictures, summaries

    check_picture(out)
    found = journal.results(file)
    rows, heading = overview.rows(found), overview.heading(found) or file.name
    output.talk(heading)
    output.table(overview.HEADERS, [row.cells for row in rows])
    output.data(f"\n{summaries.table(found, output.width())}")
    if out:
        pictures.write(out, f"{heading}: rewards by task", rows)
        output.talk(f"chart: {out}")


def check_picture(out: Path | None) -> None:
    """Fail for a chart of a format that is not drawn."""
    if out and out.suffix.lower() not in _PICTURES:
        raise output.Failure(
            f"{str(out)!r}: charts are SVG or PNG files; use a name that ends with .svg or .png",
            hint=f"--out {out.with_suffix('.svg')}",
            exit_code=2,
        )
