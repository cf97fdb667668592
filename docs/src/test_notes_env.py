"""A unit test of the environment: plain functions, no server."""

import sqlite3
from contextlib import closing

from notes_env import has_note, read_notes, write_note


def test_a_note_that_was_written_is_rewarded():
    with closing(sqlite3.connect(":memory:")) as notes:
        notes.execute("create table notes (title text primary key, text text)")
        write_note("today", "it rains", notes=notes)
        assert read_notes(notes=notes) == {"today": "it rains"}
        assert has_note("today", notes=notes) == 1.0
        assert has_note("tomorrow", notes=notes) == 0.0
