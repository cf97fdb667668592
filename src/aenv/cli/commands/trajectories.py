"""`aenv trajectories`: the records of rollouts, shown, counted, compared, and written in other formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import output
from ..help_pages import CommandGroup
from ..parameters import FILE, NUMBER, PICTURE

if TYPE_CHECKING:
    from ...rollouts.trajectory import Trajectory

_FORMATS = ("journal", "chat", "sft", "preferences", "atif", "parquet")
_EMPTY = {
    "sft": "no conversation has that reward, see --min-reward",
    "preferences": "no task has two attempts whose rewards differ, see --repeat of aenv eval",
}
"""Why a file may have no row."""
_TASK = click.option("--task", default="", metavar="ID", help="Use only the rollouts of this task.")
_ROLLOUT = click.option("--rollout", default="", metavar="ID", help="Show only this rollout.")


@click.group(
    "trajectories",
    cls=CommandGroup,
    examples=(
        "aenv trajectories show run.jsonl",
        "aenv trajectories export run.jsonl --format sft --out sft.jsonl",
    ),
)
def command() -> None:
    """Show, count, compare and export the records of rollouts.

    FILE is the journal that 'aenv eval' or Runner wrote, or a file in one of the formats of 'export'.
    """


@command.command("show", examples=("aenv trajectories show run.jsonl --task two",))
@click.argument("file", type=FILE)
@_TASK
@_ROLLOUT
@click.option("--whole", is_flag=True, help="Do not shorten long texts.")
def show(file: Path, task: str, rollout: str, whole: bool) -> None:
    """Print a transcript of each rollout.

    A transcript has the messages of the agent, and its tool calls with arguments, answers and times.
    """
    from ...rollouts.transcripts import transcript

    found = _found(file, task, rollout)
    output.data(f"\n\n{'─' * 40}\n\n".join(transcript(one, whole=whole) for one in found))


@command.command("stats", examples=("aenv trajectories stats run.jsonl --out rewards.svg",))
@click.argument("file", type=FILE)
@PICTURE
def stats(file: Path, out: Path | None) -> None:
    """Count the rollouts by outcome, and the calls by tool."""
    from ...rollouts import overview, pictures, transcripts

    found = _found(file)
    output.table(("Measure", "Value"), transcripts.numbers(found))
    uses = transcripts.tool_uses(found)
    if uses:
        output.data("")
        output.table(transcripts.TOOL_HEADERS, [use.cells for use in uses])
    results = [one.result for one in found if one.result]
    if out and results:
        title = f"{overview.heading(results) or file.name}: rewards by task"
        pictures.write(out, title, overview.rows(results))
        output.talk(f"chart: {out}")


@command.command(
    "export",
    examples=(
        "aenv trajectories export run.jsonl --format chat --out chats.jsonl",
        "aenv trajectories export run.jsonl --format preferences --out pairs.jsonl",
    ),
)
@click.argument("file", type=FILE)
@click.option("--format", "kind", type=click.Choice(_FORMATS), required=True, help="Format of the new file.")
@click.option("--out", type=FILE, required=True, metavar="FILE", help="File to write.")
@_TASK
@click.option(
    "--min-reward",
    type=NUMBER,
    help="Lowest reward of a conversation (sft), or lowest difference of the rewards in a pair (preferences).  "
    "[default: 1.0, 0.0]",
)
@click.option("--force", is_flag=True, help="Export even if the environment is marked evalOnly.")
def export(file: Path, kind: str, out: Path, task: str, min_reward: float | None, force: bool) -> None:
    """Write rollouts in another format.

    \b
    Formats:
      journal      the lines that 'aenv eval' writes
      chat         every conversation, with tools, loss mask and reward
      sft          the conversations that a model shall imitate
      preferences  pairs of attempts at the same task
      atif         documents for Harbor
      parquet      a table for the library 'datasets'
    """
    from ...rollouts.exports import exchange

    count = exchange.save(out, _found(file, task), kind, min_reward=min_reward, force=force)  # type: ignore[arg-type]
    why = f"; {_EMPTY[kind]}" if not count and kind in _EMPTY else ""
    output.talk(f"{count} rows: {out}{why}")


@command.command("diff", examples=("aenv trajectories diff before.jsonl after.jsonl",))
@click.argument("file", type=FILE)
@click.argument("other", type=FILE)
@_TASK
def diff(file: Path, other: Path, task: str) -> int:
    """Compare the rollouts of two files, by task and attempt.

    Prints the first step that differs in each pair, and the two outcomes. The exit code is 1 when a pair differs.
    """
    from ...rollouts.transcripts import difference

    mine, theirs = ({(o.head.task, o.head.attempt): o for o in _found(each, task)} for each in (file, other))
    differ = False
    for key, one in mine.items():
        name = key[0] + (f" attempt {key[1]}" if key[1] else "")
        found = difference(one, theirs[key]) if key in theirs else [f"only in {file}"]
        differ = differ or bool(found)
        output.data(output.plain("\n  ".join([f"{name}: {'the same' if not found else ''}".rstrip(), *found])))
    for task_id, attempt in theirs.keys() - mine.keys():
        differ = True
        output.data(output.plain(f"{task_id}{f' attempt {attempt}' if attempt else ''}:\n  only in {other}"))
    return int(differ)


def _found(file: Path, task: str = "", rollout: str = "") -> list[Trajectory]:
    from ...rollouts.exports import exchange

    known = exchange.load(file)
    found = [one for one in known if task in ("", one.head.task) and rollout in ("", one.head.rollout)]
    if not found:
        raise output.Failure(f"{str(file)!r} has no such rollout", hint=f"aenv trajectories show {file}")
    return found
