"""`python -m aenv.main PATH`: the command of an instance, under the name that published images use."""

from __future__ import annotations

import gc
from typing import NoReturn


def run_cli() -> NoReturn:
    """Serve an environment, as the command line says."""
    from .inside.runtime.program import main

    main()


def show_version() -> None:
    """Print the version of aenv."""
    from . import __version__

    print(__version__)


if __name__ == "__main__":
    # Nothing that is imported becomes garbage; looking for it costs a tenth of the start. Serving turns it on.
    gc.disable()
    run_cli()
