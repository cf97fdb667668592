"""One word, one meaning: no two classes, type aliases, files or folders of the package share a name.

Aliases that stand for the same type may: they are one meaning, written where it is needed.

Run as `python scripts/lib/names.py [ROOT]`. Not checked: built-in environments, which are projects of their own.
Of some modules only the classes are: commands (`cli/commands`) are called as users call them, published import
paths (`core`, `server`, `main.py`) as they were, examples and the programs of attacks after what they show.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_OURS = Path(__file__).resolve().parent.parent.parent
_CAPITALIZED = re.compile(r"_?[A-Z]\w*[a-z]")
CALLED_BY_USERS = (
    "attacks/environments/",
    "attacks/programs/",
    "cli/commands/",
    "core/",
    "examples/",
    "server/",
    "main.py",
)
ALLOWED = {
    "Address": "an engine's, and the published model of the same name (base/models.py)",
    "base": "the floor, and the contract of a family: engines/base.py, stores/base.py",
    "control": "the wing, and the control port of `aenv run` (inside/runtime/control.py)",
    "hub": "the part of the control plane, and its client",
    "rootfs": "what builds root file systems, and what a sandbox must know of one",
    "services": "the part of the control plane, and its client",
    "serving": "what servers of the control plane share, and the composition root of the runtime",
    "sidecar": "what runs in a sidecar, and what authors call of it",
    "zygote": "the processes that start instances, and the one with that name",
    "__init__": "what Python calls a package",
}


def repeats(root: Path) -> Iterator[str]:
    """Every name with two meanings, and where they are."""
    for name, places in _named(root).items():
        if len(places) > 1 and name not in ALLOWED:
            yield f"{name}: {', '.join(places.values())}; name each after what it is"


def unused(root: Path) -> Iterator[str]:
    """Every name that may be there twice, and is not: the next one to take it would go unnoticed."""
    found = _named(root)
    for name in ALLOWED:
        if len(found[name]) < 2:
            yield f"{name}: is used once; remove it from ALLOWED"


def _named(root: Path) -> dict[str, dict[str, str]]:
    """The places of each name, by its meanings."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    source = root / "src" / "aenv"
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).as_posix()
        if inside.startswith("envs/"):
            continue
        is_ours = not inside.startswith(CALLED_BY_USERS)
        if is_ours:
            for folder in path.relative_to(source).parents[:-1]:
                found[folder.name][f"{folder}/"] = f"{folder}/"
            found[path.stem][inside] = inside
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name][inside] = inside
            elif is_ours and (alias := _alias(node)):
                name, meaning = alias
                found[name].setdefault(meaning, inside)
    return found


def _alias(node: ast.stmt) -> tuple[str, str] | None:
    """The name of a type alias, and the type. Constants are in capitals, and a TypeVar is a call."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=ast.Subscript() | ast.BinOp() | ast.Name() as value):
            return (name, ast.unparse(value)) if _CAPITALIZED.match(name) else None
        case ast.AnnAssign(ast.Name(name), ast.Name("TypeAlias"), value) if value:
            return name, ast.unparse(value)
    return None


if __name__ == "__main__":
    top = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    said = [*repeats(top), *(unused(top) if top.samefile(_OURS) else ())]
    print("\n".join(said) or "names: each is used once")
    sys.exit(bool(said))
