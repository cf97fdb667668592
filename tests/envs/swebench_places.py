"""Places where patches are judged, made for tests."""

from __future__ import annotations

import compileall
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.envs.swebench_data import RECORD, installed, make_data

# isort: split
import swebench_bases as bases
import swebench_patches as patches
import swebench_sites as sites
from swebench_grading import Grader
from swebench_records import record_of
from swebench_runs import Place

SOLUTION = (
    "--- a/pkg/core.py\n+++ b/pkg/core.py\n@@ -1,2 +1,2 @@\n def double(n):\n-    return n\n+    return 2 * n\n"
)


def make_place(folder: Path, cache: pytest.Cache) -> Place:
    """Where our record is judged: its release, and a Python with pytest."""
    data, record = make_data(folder / "data", cache), record_of(RECORD)
    variant = bases.from_sdist(record, data / "sdists", folder / "base")
    compileall.compile_dir(folder / "base" / "toolz", maxlevels=0, quiet=2)  # once, and not in each run
    site = sites.build(record, [data], folder / "site", folder / "testbed")
    assert site.ready
    readable = (folder / "site", site.ready, site.interpreter.prefix, site.interpreter.path)
    tree = folder / "testbed"
    return Place(folder / "base", variant, site.python, readable, folder / "work", tree, site.packages)


def with_pytest(version: str, place: Place, folder: Path, cache: pytest.Cache) -> Place:
    """The same place with another pytest."""
    packages = installed(cache, version)
    site = sites.build(record_of(RECORD), [folder], folder / "site", place.tree)
    (site.packages / "ready.pth").write_text(f"{packages}\n")
    readable = (*place.readable, folder / "site", packages)
    return replace(place, python=site.python, readable=readable, packages=site.packages)


def added(path: str, content: str) -> str:
    return patches.diff(path, None, content.encode(), False, False)


def small(place: Place, tmp_path: Path, files: dict[str, str], **record: Any) -> Grader:
    for name, content in files.items():
        (tmp_path / "base" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "base" / name).write_text(content)
    own = replace(place, base=tmp_path / "base", work=tmp_path / "work")
    return Grader(record_of({**RECORD, "patch": SOLUTION, **record}), own)
