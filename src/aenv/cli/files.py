"""Files that are replaced as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace(file: Path, text: str, mode: int) -> None:
    """Make `file` hold `text`, with this mode. A link stays one: people keep settings in git."""
    file = file.resolve()
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            os.fchmod(descriptor, mode)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
