"""`python -m aenv.main PATH`: the command of an instance, under the name that published images use."""

from __future__ import annotations

from .runtime.program import main as run_cli


def show_version() -> None:
    """Print the version of aenv."""
    from . import __version__

    print(__version__)


if __name__ == "__main__":
    run_cli()
