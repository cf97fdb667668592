"""Size limits: files, functions, packages and the core as a whole.

Run as `python scripts/lib/sizes.py [ROOT]`; prints one line for each thing that is too large.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 500
FUNCTION_LINES = 80
PACKAGE_LINES = 2_600
# Thirty commands, or several engines, that know nothing of one another; and tables of facts about kernels.
PACKAGES_OF_MANY = {"cli": 4_400, "engines": 4_000, "sandbox": 3_000}
CORE_LINES = 40_000

CHECKED = ("src", "tests", "benchmarks", "conformance", "scripts")
OUTSIDE_THE_CORE = {"envs", "integrations", "web"}


def too_large(root: Path) -> Iterator[str]:
    """Every limit that something below `root` exceeds, in words."""
    packages: Counter[str] = Counter()
    for path in (path for folder in CHECKED for path in sorted((root / folder).rglob("*.py"))):
        name = path.relative_to(root)
        text = path.read_text()
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            yield f"{name}: {lines} lines; a file has at most {FILE_LINES}"
        if name.parts[0] == "src":
            packages[_package(name)] += lines
            yield from _long_functions(name, text)

    core = {package: lines for package, lines in packages.items() if package not in OUTSIDE_THE_CORE}
    for package, lines in core.items():
        most = PACKAGES_OF_MANY.get(package, PACKAGE_LINES)
        if lines > most:
            yield f"src/aenv/{package}: {lines} lines; a package has at most {most}"
    if (total := sum(core.values())) > CORE_LINES:
        yield f"src/aenv: {total} lines; the core has at most {CORE_LINES}"


def _package(name: Path) -> str:
    """`src/aenv/client/api.py` → "client"; the modules beside the packages count as one, ""."""
    return name.parts[2] if len(name.parts) > 3 else ""


def _long_functions(name: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                where = f"{name}:{node.lineno}"
                yield f"{where}: {node.name} has {lines} lines; a function has at most {FUNCTION_LINES}"


if __name__ == "__main__":
    found = list(too_large(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(found) or "sizes: within their limits")
    sys.exit(bool(found))
