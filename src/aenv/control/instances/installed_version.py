"""Whether another version of aenv was installed while this gateway runs: then it may start no more instances.

It starts them with programs of the installed version, which need not understand it.
"""

from __future__ import annotations

import re
from pathlib import Path

import aenv

from ... import __version__
from ...base.errors import StartFailed

_FILE = Path(aenv.__file__)
_VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)


def explained(error: Exception) -> Exception:
    """The same; a failed start says so when aenv was upgraded meanwhile, which may be the reason."""
    installed = _installed() if isinstance(error, StartFailed) else __version__
    if installed == __version__:
        return error
    return StartFailed(
        f"{error}; aenv {installed} was installed while this gateway runs aenv {__version__}: restart it; "
        "your own platform is replaced when you restart your programs"
    )


def _installed() -> str:
    """Read anew: what was imported is the version that runs."""
    try:
        found = _VERSION.search(_FILE.read_text(encoding="utf-8"))
    except OSError:  # it is being replaced
        return "of another version"
    return found[1] if found else "of another version"
