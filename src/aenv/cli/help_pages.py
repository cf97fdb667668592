"""Commands and groups of commands as click has them, with better help.

A page ends with examples, a group shows the whole first sentence of each command, which click would cut, and a
command that does not exist is an error with the name that was perhaps meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from . import output
from .output import Failure


class DocumentedCommand(click.Command):
    """A command whose help page ends with examples, and shows the default of an option once."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = tuple(examples)
        for option in self.params:
            if isinstance(option, click.Option) and (option.default == "" or "[default:" in (option.help or "")):
                option.show_default = False

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:  # as they are: a wrapped command line could not be copied
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def documented(
    name: str, *, examples: Sequence[str], **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declares a command whose help page ends with these examples."""
    return click.command(name, cls=DocumentedCommand, examples=examples, **attributes)


class CommandGroup(DocumentedCommand, click.Group):
    """A group of commands; those that are declared with `@group.command` have examples too."""

    command_class = DocumentedCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            # Not left to click: its newer versions raise the page as an error, which would be printed as one line.
            output.talk(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_section(ctx, formatter, "Commands", self.list_commands(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            import difflib  # only for this message

            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            raise Failure(
                f"no command {name!r}{f'; did you mean {near[0]!r}?' if near else ''}",
                hint=f"{ctx.command_path} --help",
                exit_code=2,
            )
        return super().resolve_command(ctx, args)

    def write_section(
        self, ctx: click.Context, formatter: click.HelpFormatter, title: str, names: Iterable[str], width: int = 0
    ) -> None:
        """Some of its commands under a title; `width` aligns several sections."""
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name.ljust(width), found.get_short_help_str(limit=1000)) for name, found in commands if found]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
