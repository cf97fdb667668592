"""One word, one meaning: no two classes and no two files of the package share a name.

Run as `python scripts/lib/names.py [ROOT]`. Not checked: commands (`cli/commands`), which are called as users
call them; built-in environments, which are projects of their own; published import
paths (`core`, `server`, `main.py`).
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

NOT_OURS = (
    "attacks/environments/",
    "attacks/programs/",
    "cli/commands/",
    "core/",
    "envs/",
    "examples/",
    "server/",
    "main.py",
)
ALLOWED = {
    "Address": "an engine's, and the published model of the same name (base/models.py)",
    "base.py": "the contract of a family: engines/base.py, stores/base.py",
    "__main__.py": "what Python runs for `-m`",
    "__init__.py": "what Python calls a package",
}


def repeats(root: Path) -> Iterator[str]:
    """Every name that two classes, or two files, have, and where they are."""
    found: dict[str, list[str]] = defaultdict(list)
    source = root / "src" / "aenv"
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).as_posix()
        if inside.startswith(NOT_OURS):
            continue
        found[path.name].append(inside)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(inside)
    for name, places in found.items():
        if len(places) > 1 and name not in ALLOWED:
            yield f"{name}: {', '.join(places)}; name each after what it is"


if __name__ == "__main__":
    said = list(repeats(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(said) or "names: each is used once")
    sys.exit(bool(said))
