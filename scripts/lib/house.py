"""House rules that a search of the text can check. Run as `python scripts/lib/house.py [ROOT]`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rule:
    """A pattern that no line of `src/aenv/<inside>` may match, except in one file, or in one folder."""

    pattern: re.Pattern[str]
    why: str
    inside: str = ""
    except_in: str = ""
    not_inside: tuple[str, ...] = ()


RULES = (
    Rule(re.compile(r"\b(TODO|FIXME|XXX)\b"), "finish it, or open an issue"),
    Rule(re.compile(r"\bNotImplementedError\b"), "nothing is shipped half made"),
    Rule(
        re.compile(r"\bos\.(environ|getenv|putenv)\b"),
        "variables are read in settings.py, and handed down",
        except_in="base/settings.py",
        # An environment's variables are its instance's; an example is a program; AReaL hands its agents variables.
        not_inside=("envs/", "examples/", "integrations/areal.py"),
    ),
    Rule(
        re.compile(r"(?<![\w.])print\(|\bclick\.s?echo\("),
        "only cli/output.py prints",
        inside="cli/",
        except_in="cli/output.py",
    ),
    Rule(
        re.compile(r"except .*\bException\b(?!.*# boundary: \w)"),
        "catch what you can handle; at foreign code, say '# boundary: whose code'",
    ),
    Rule(
        re.compile(r"\b(deploy|deploy_config|(project|found|here)\.(raw|build|test))(\.get\(|\[)\s*f?[\"']"),
        "config.json is read in base/config; use the attributes of Project and its Deploy",
    ),
    Rule(
        re.compile(r"\bInstanceSpec\("),
        "an InstanceSpec is made complete, by instance_spec alone",
        except_in="control/instances/specs.py",
    ),
    Rule(
        re.compile(r"(?<!there )(?<!There )(?<!where )\b(is|are) no (?!longer\b|more\b)[a-z]"),
        "write 'is not a …'; 'there is no …' is plain",
        not_inside=("envs/",),
    ),
    Rule(re.compile(r"\bshell=True\b|\bos\.system\("), "start programs by argument list"),
)
# Names that were given up, and what the thing is called now. Texts and the paths of files are searched for them;
# ADRs and the changelog may tell of them.
OLD_NAMES = {
    re.compile(
        r"\b[Ss]econd[ _-]?parts?\b|second_part|SecondPart|secondPart|\b(seconds|first_use)\.py\b"
    ): "sidecar",
    re.compile(
        r"\bdef later\(project|\bclass Later\b|\b_start_later\b|\b_later_root\b|sidecar_later"
    ): "lazy sidecar",
    re.compile(r"\bBlank\b|\bblank instances?\b|\b[Bb]lanks\.py\b"): "spare instance",
    re.compile(
        r"\b(Lives|Life|Creations)\b|\b(lives|creations)\.py\b"
    ): "supervisor, supervised instance, creation",
    re.compile(r"\b[Rr]ooting\b|\b(rooting|roots)\.py\b"): "rootfs cache, rootfs resolver",
    re.compile(r"\blayer_(for|of)\b|\bspec\.layer\b|--layer\b|<home>/layers|\blayers\.py\b"): "requirements",
    re.compile(
        r"\b(routing|root_routes|operating)\.py\b|\bgateway/routes\.py\b"
    ): "data request, rootfs routes, usage routes, instance routes",
    re.compile(r"\b(apart|ahead)\.py\b|\bboot/\w"): "inside/zygote: standalone, spares, preloaded",
    re.compile(
        r"\bmoves\.py\b|\bsandbox/(launch|step|attempts)\.py\b"
    ): "launcher, build step, cgroup moves, selftest",
    re.compile(r"\bfinding\.py\b"): "hierarchy",
    re.compile(r"\bnative/bundles\b"): "oci_config",
}
MAY_USE_OLD_NAMES = (
    "scripts/lib/house.py",
    "src/aenv/__init__.py",
    "src/aenv/base/config/deploy.py",
    "tests/homes/running.json",
    "tests/test_config.py",
    "tests/test_public_names.py",
    "tests/test_scripts.py",
)
_TEXTS = (".py", ".md", ".json", ".ts", ".tsx", ".yaml", ".yml", ".toml", ".txt", ".sh", ".tmpl", ".svg")
_NAMED_FILE = re.compile(r"`(?:[\w/]*/)?(\w+\.py)`")
VAGUE_PEOPLE = re.compile(r"\b(nobody|whoever|somebody)\b", re.IGNORECASE)
LINES_FOR_EACH = 1_000  # of the core, for one of them: name the caller, the owner, the process
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


def violations(root: Path) -> Iterator[str]:
    """Every broken rule below `root`, in words."""
    source = root / "src" / "aenv"
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).as_posix()
        if VAGUE_NAMES & {path.stem, *Path(inside).parts}:
            yield f"{path.relative_to(root)}: a module is named after what it holds"
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for rule in RULES:
                applies = inside.startswith(rule.inside) and inside != rule.except_in
                applies = applies and not inside.startswith(rule.not_inside)
                if applies and rule.pattern.search(line):
                    yield f"{path.relative_to(root)}:{number}: {line.strip()}: {rule.why}"
    yield from _old_names(root)
    yield from _vague_people(source)
    yield from _gone_files(root)
    for path in sorted(p for folder in ("scripts", ".ci") for p in (root / folder).rglob("*") if p.is_file()):
        if path.read_bytes().startswith(b"#!") != os.access(path, os.X_OK):
            yield f"{path.relative_to(root)}: executable if, and only if, it begins with '#!'"


def _old_names(root: Path) -> Iterator[str]:
    texts = [
        path
        for folder in ("src", "tests", "docs", "web/src", "deploy", "conformance", "benchmarks", "scripts")
        for path in sorted((root / folder).rglob("*"))
    ]
    for path in [*texts, *sorted(root.glob("*.md"))]:
        name = path.relative_to(root).as_posix()
        is_history = name.startswith("docs/adr/") or name == "CHANGELOG.md"
        if path.suffix not in _TEXTS or is_history or name in MAY_USE_OLD_NAMES:
            continue
        for number, line in enumerate((name, *path.read_text().splitlines())):
            for old, new in OLD_NAMES.items():
                if "old name" not in line and old.search(line):
                    yield f"{name}:{number}: {line.strip()[:100]}: it is called {new}"


def _gone_files(root: Path) -> Iterator[str]:
    """Every `file.py` that the core speaks of and that does not exist; environments speak of files of others."""
    folders = ("src", "tests", "scripts", "conformance", "benchmarks")
    known = {path.name for folder in folders for path in (root / folder).rglob("*.py")}
    core = (path for path in sorted((root / "src").rglob("*.py")) if "envs" not in path.parts)
    for path in core:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in _NAMED_FILE.findall(line):
                if name not in known:
                    yield f"{path.relative_to(root)}:{number}: there is no {name}"


def _vague_people(source: Path) -> Iterator[str]:
    found, lines = 0, 0
    for path in source.rglob("*.py"):
        if not path.is_relative_to(source / "envs"):
            text = path.read_text()
            found += len(VAGUE_PEOPLE.findall(text))
            lines += text.count("\n")
    if found * LINES_FOR_EACH > lines:
        yield f"src/aenv: nobody, whoever or somebody {found} times in {lines} lines; name the caller or owner"


if __name__ == "__main__":
    found = list(violations(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(found) or "house: every rule is kept")
    sys.exit(bool(found))
