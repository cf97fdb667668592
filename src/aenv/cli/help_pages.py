"""Commands and groups of commands as click has them, with better help pages.

A page ends with examples, and a group shows the whole first sentence of each command: click would cut it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click


class DocumentedCommand(click.Command):
    """A command whose help page ends with examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:  # as they are: a wrapped command line could not be copied
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


class CommandGroup(DocumentedCommand, click.Group):
    """A group of commands; those that are declared with `@group.command` have examples too."""

    command_class = DocumentedCommand

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_section(ctx, formatter, "Commands", self.list_commands(ctx))

    def write_section(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: Iterable[str], width: int = 0
    ) -> None:
        """Some of its commands under a title; `width` aligns several sections."""
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name.ljust(width), found.get_short_help_str(limit=1000)) for name, found in commands if found]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
