"""An environment for a note-taking agent."""

import sqlite3
from collections.abc import Iterator

from aenv import (
    Context,
    Depends,
    register_function,
    register_health,
    register_reset,
    register_reward,
    register_tool,
)


def open_notes(context: Context) -> Iterator[sqlite3.Connection]:
    """Made at the first call that needs it, closed when the instance ends."""
    notes = sqlite3.connect(context.workspace / "notes.db", check_same_thread=False)
    notes.execute("create table if not exists notes (title text primary key, text text)")
    yield notes
    notes.close()


@register_tool
def write_note(title: str, text: str, notes: sqlite3.Connection = Depends(open_notes)) -> str:
    """Write a note, or replace it.

    Args:
        title: What the note is called.
        text: Its text.
    """
    with notes:
        notes.execute("insert or replace into notes values (?, ?)", (title, text))
    return f"wrote {title!r}"


@register_tool(annotations={"readOnlyHint": True})
def read_notes(notes: sqlite3.Connection = Depends(open_notes)) -> dict[str, str]:
    """All notes, by their titles."""
    return dict(notes.execute("select title, text from notes order by title"))


@register_tool
async def export(context: Context, copies: int = 3) -> int:
    """Export the notes, and say how far it is."""
    for copy in range(copies):
        await context.progress(copy, copies, f"copy {copy}")
    return copies


@register_function
def count(notes: sqlite3.Connection = Depends(open_notes)) -> int:
    """For the trainer, not for the agent."""
    return int(notes.execute("select count(*) from notes").fetchone()[0])


@register_reward
def has_note(title: str, notes: sqlite3.Connection = Depends(open_notes)) -> float:
    """1.0 when the agent wrote the note."""
    return float(bool(notes.execute("select 1 from notes where title = ?", (title,)).fetchone()))


@register_reward(name="brevity")
def brevity(notes: sqlite3.Connection = Depends(open_notes)) -> float:
    """Shorter notes are better."""
    length = notes.execute("select coalesce(sum(length(text)), 0) from notes").fetchone()[0]
    return 1.0 / (1.0 + length)


@register_reset
def start_over(seed: int | None = None, notes: sqlite3.Connection = Depends(open_notes)) -> dict[str, int | None]:
    """Forget every note."""
    with notes:
        notes.execute("delete from notes")
    return {"seed": seed}


@register_health
def health(notes: sqlite3.Connection = Depends(open_notes)) -> dict[str, str]:
    """Healthy while the database answers."""
    notes.execute("select 1")
    return {"status": "healthy"}
