"""Groups of commands, whose help says of each command its whole first sentence: click would cut it to one line."""

from __future__ import annotations

from collections.abc import Iterable

import click


class Group(click.Group):
    """A group of commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_section(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_section(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: Iterable[str], width: int = 0
    ) -> None:
        """Some of its commands under a title; `width` lines several sections up."""
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name.ljust(width), found.get_short_help_str(limit=1000)) for name, found in commands if found]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
