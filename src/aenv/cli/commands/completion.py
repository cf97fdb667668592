"""`aenv completion`: the script that teaches a shell to complete aenv's commands and options."""

from __future__ import annotations

import click

from .. import output


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(aenv completion bash)"            in ~/.bashrc
    zsh:   eval "$(aenv completion zsh)"             in ~/.zshrc
    fish:  aenv completion fish > ~/.config/fish/completions/aenv.fish
    """
    from click.shell_completion import get_completion_class

    from ..main import cli

    kind = get_completion_class(shell)
    assert kind is not None  # the three of the choice come with click
    output.data(kind(cli, {}, "aenv", "_AENV_COMPLETE").source())
