"""Size limits: files, functions, wings. Run as `python scripts/lib/sizes.py [ROOT]`.

A wing's budget is what it had when it was drawn, and a tenth. It is raised in a commit of its own, before what
needs it, with what was looked for to delete: a commit that raises one and changes code as well is refused.
"""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 500
FUNCTION_LINES = 80
# Lines of each folder of src/aenv; "" are the modules beside them. Built-in environments and what is written for
# one framework each have none.
BUDGETS = {
    "": 160,
    "artifacts": 2_550,
    "attacks": 3_050,
    "base": 4_400,
    "cli": 7_350,
    "client": 4_300,
    "control": 19_900,
    "core": 140,
    "engines": 12_400,
    "examples": 3_050,
    "inside": 8_700,
    "isolation": 9_400,
    "rollouts": 10_600,
    "server": 10,
    "web": 1_700,
}
WITHOUT_BUDGET = {"envs", "integrations"}

CHECKED = ("src", "tests", "benchmarks", "conformance", "scripts")
_HERE = "scripts/lib/sizes.py"
_COMMITS = 100  # of those that changed this file, as far as they are looked at


def too_large(root: Path) -> Iterator[str]:
    """Every limit that something below `root` exceeds, in words."""
    wings: Counter[str] = Counter()
    for path in (path for folder in CHECKED for path in sorted((root / folder).rglob("*.py"))):
        name = path.relative_to(root)
        text = path.read_text()
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            yield f"{name}: {lines} lines; a file has at most {FILE_LINES}"
        if name.parts[0] == "src":
            wings[_wing(name)] += lines
            yield from _long_functions(name, text)

    for wing, lines in wings.items():
        if wing in WITHOUT_BUDGET:
            continue
        if wing not in BUDGETS:
            yield f"src/aenv/{wing}: has no budget; give it one in {_HERE}"
        elif lines > BUDGETS[wing]:
            yield f"src/aenv/{wing}: {lines} lines; its budget is {BUDGETS[wing]}"


def hidden_raises(root: Path) -> Iterator[str]:
    """Every commit that raises a budget and changes code of ours as well, as far as the history goes."""
    # Without merges: what they bring together was looked at where it was committed.
    commits = _git(root, "log", f"-{_COMMITS}", "--no-merges", "--format=%h", "--", _HERE).split()
    for commit in commits:
        if not _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^"):
            continue  # the first one, or the first that a shallow clone has
        before = _budgets(_git(root, "show", f"{commit}^:{_HERE}"))
        after = _budgets(_git(root, "show", f"{commit}:{_HERE}"))
        raised = [wing for wing in before if after.get(wing, math.inf) > before[wing]]
        changed = _git(root, "show", "--format=", "--name-only", commit, "--", "src").split()
        if raised and changed:
            yield f"{commit}: raises the budget of {', '.join(raised)} and changes {changed[0]}; do one at a time"


def is_shallow(root: Path) -> bool:
    """Whether the history is cut off, so that commits which raise a budget may not be seen."""
    return _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"


def _wing(name: Path) -> str:
    """`src/aenv/client/api.py` → "client"; the modules beside the wings count as one, ""."""
    return name.parts[2] if len(name.parts) > 3 else ""


def _long_functions(name: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                where = f"{name}:{node.lineno}"
                yield f"{where}: {node.name} has {lines} lines; a function has at most {FUNCTION_LINES}"


def _budgets(text: str) -> dict[str, int]:
    """BUDGETS of a version of this file; empty for one that has none."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["BUDGETS"]:
            found: dict[str, int] = ast.literal_eval(node.value)
            return found
    return {}


def _git(root: Path, *arguments: str) -> str:
    """What git says; nothing where there is no repository, or no such version."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    top = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = [*too_large(top), *hidden_raises(top)]
    print("\n".join(found) or "sizes: within their limits")
    if is_shallow(top):
        print("sizes: this clone is shallow, so older raises of budgets are not checked; 'git fetch --unshallow'")
    sys.exit(bool(found))
