"""Parts: what a gateway tells the runtime of a composed environment, and how their tools are called there.

Not here: which environments are parts (`config/project.py`), and their instances (`control/instances/kinship.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .errors import InvalidRequest

VARIABLE = "AENV_PARTS"
"""The variable that names the parts to the runtime: names and prefixes, as `spell` writes them."""
PATH = "/parts"
"""Below which a relay makes and finds them: `PUT /parts/NAME`."""
MOST_PARTS = 16
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}\Z")


@dataclass(frozen=True)
class NamedPart:
    """A part as its environment calls it. Without a prefix its tools keep their names, where no other has them."""

    name: str
    is_prefix: bool = False

    @property
    def prefix(self) -> str:
        return f"{re.sub('[^A-Za-z0-9_]', '_', self.name)}_"


def spell(parts: Iterable[NamedPart]) -> str:
    """`web=,python`: a name that is a prefix, too, ends in "="."""
    return ",".join(f"{part.name}{'=' if part.is_prefix else ''}" for part in parts)


def read(text: str) -> tuple[NamedPart, ...]:
    """What `spell` has written."""
    return tuple(NamedPart(word.removesuffix("="), word.endswith("=")) for word in text.split(",") if word)


def tool_names(own: Iterable[str], parts: Mapping[NamedPart, Sequence[str]]) -> dict[str, tuple[NamedPart, str]]:
    """What the tools of parts are called in the whole: part and own name of each, by that.

    A tool without a prefix gets one where another tool has its name, whatever the order. InvalidRequest where two
    would have one name all the same: one of them could not be called.
    """
    own = [*own]
    prefixed = {(part, name) for part, names in parts.items() for name in names if part.is_prefix}
    while True:
        called = {
            (part, name): part.prefix + name if (part, name) in prefixed else name
            for part, names in parts.items()
            for name in names
        }
        taken = Counter([*own, *called.values()])
        # Until none is found: a name with a prefix may be the one of another tool.
        clashing = {tool for tool, name in called.items() if taken[name] > 1} - prefixed
        if not clashing:
            break
        prefixed |= clashing
    for (part, _), name in called.items():
        if taken[name] > 1:
            fix = f"give the part {part.name!r} another name with 'as'"
            raise InvalidRequest(f"field 'uses': two tools would be called {name!r}; {fix}")
    return {name: tool for tool, name in called.items()}
