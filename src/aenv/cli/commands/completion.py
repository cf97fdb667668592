"""`aenv completion`: the script that teaches a shell to complete aenv's commands and options."""

from __future__ import annotations

import click

from .. import output
from ..help_pages import documented


@documented(
    "completion",
    examples=(
        'eval "$(aenv completion bash)"     # in ~/.bashrc',
        'eval "$(aenv completion zsh)"      # in ~/.zshrc',
        "aenv completion fish > ~/.config/fish/completions/aenv.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from ..main import cli

    kind = get_completion_class(shell)
    assert kind is not None  # the three of the choice come with click
    output.data(kind(cli, {}, "aenv", "_AENV_COMPLETE").source())
