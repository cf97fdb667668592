"""What the program that unpacks tars is told, and what it says when it ends.

The tars may be hostile, so what it says is read strictly (`typed_json.py`).
"""

# No postponed annotations here: `decode` reads the types of the fields.

from dataclasses import dataclass


@dataclass(frozen=True)
class TarSource:
    descriptor: int
    digest: str
    """Which it must have without its compression; empty when that is not known."""
    into: str
    """The folder in the target that its entries belong to."""


@dataclass(frozen=True)
class UnpackTask:
    """Unpack the tars into a folder, one over the other."""

    target: int
    """A descriptor of the folder."""
    tars: tuple[TarSource, ...]
    whiteouts: bool
    """Whether to do what a layer of an image says about files that are gone."""
    most_bytes: int
    most_files: int


@dataclass(frozen=True)
class Unpacked:
    """All of it is in the folder."""

    skipped: int
    """How many devices were left out."""


@dataclass(frozen=True)
class UnpackFailed:
    """Why it is not."""

    kind: str
    """ "refused": what is wrong with a tar; "too large": which limit the tars exceed; "failed": what went wrong on
    this host."""
    error: str
