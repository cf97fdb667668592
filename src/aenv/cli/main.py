"""The entry point: finds a command by name, runs it, and turns an error into one line and an exit code.

0    done
1    failed
2    misused
3    a configuration file or variable is wrong (published)
130  interrupted
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from ..base.errors import AEnvError
from . import output
from .help_pages import CommandGroup

# Commands are modules of `commands`, loaded when they are run: the CLI starts as fast as its command does.
# The titles are what people do.
GROUPS = {
    "Write environments": ("init", "run", "call", "test", "build"),
    "Run instances and services": ("instance", "instances", "ps", "top", "service", "secret"),
    "Share environments": ("push", "pull", "list", "get", "release", "delete"),
    "Operate a gateway": ("serve", "hub", "token", "warm", "image", "prune", "backup", "restore"),
    "Evaluate agents and environments": (
        "eval",
        "validate",
        "data",
        "capture",
        "trajectories",
        "view",
        "replay",
        "rescore",
        "synth",
    ),
    "Get started": ("demo", "doctor", "login", "logout", "config", "completion", "version"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)


class LazyGroup(CommandGroup):
    """A group whose commands are the function `command` of the module of their name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".commands.{cmd_name}", __package__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Under the titles of `GROUPS`."""
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            self.write_section(ctx, formatter, title, names, widest)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:2] == ["eval", "show"]:  # `eval` takes an environment, so it cannot be a group
            from .commands.eval_show import command

            return "eval show", command, args[2:]
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        from aenv import __version__

        output.data(__version__)
        ctx.exit()


@click.command(
    "aenv",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    examples=(
        "aenv init my-env && aenv run my-env       # write an environment and serve it",
        "aenv instance create gsm-tools --keep-alive  # start an instance",
        "aenv eval gsm-tools --agent oracle        # play its tasks",
        "aenv COMMAND --help                       # options and examples of a command",
    ),
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version number.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log progress to stderr.")
@click.option("--debug", is_flag=True, help="Log everything to stderr.")
def cli(verbose: bool, debug: bool) -> None:
    """Write environments in Python, run instances of them, and evaluate agents."""
    if verbose or debug:
        from ..base import logs

        logs.configure("DEBUG" if debug else "INFO", sys.stderr)


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. What a user can cause is printed, not raised."""
    try:
        code = cli.main(list(arguments), prog_name="aenv", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except output.Failure as failure:
        output.error(failure.message, failure.hint)
        return failure.exit_code
    except click.UsageError as misuse:
        command = misuse.ctx.command_path if misuse.ctx else "aenv"
        output.error(_decapitalised(misuse.format_message()), f"{command} --help")
        return misuse.exit_code
    except click.ClickException as failed:
        output.error(_decapitalised(failed.format_message()))
        return failed.exit_code
    except AEnvError as failed:
        output.error(failed.message, failed.details.get("hint"))
        return 1
    except OSError as failed:
        where = f"'{failed.filename}': " if failed.filename else ""
        output.error(f"{where}{(failed.strerror or str(failed)).lower()}")
        return 1
    return code if isinstance(code, int) else 0


def _decapitalised(message: str) -> str:
    """click's messages, in our spelling: lower case, no full stop."""
    return (message[:1].lower() + message[1:]).rstrip(".")
