"""What a solution may not bring along: tests, and whatever steers the tool that runs them.

The tree that is judged has the model's patch, but these files are the base's, and those of the test patch are the
test patch's. Data sets of the benchmark keep such files out of reference solutions, so no honest one loses by it.
"""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import swebench_patches as patches
from swebench_records import Record

_FOLDERS = {"test", "tests", "testing"}
_STEERING = {
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
    *("pyproject.toml", ".coveragerc", "sitecustomize.py", "usercustomize.py", "runtests.py", "tests.py"),
}
_SHADOWING = {"pytest", "_pytest", "pluggy", "unittest", "py", "iniconfig", "doctest"}


class Unfit(Exception):
    """The record's own tests cannot be put into its own base: nothing can be judged by them."""


def sealed_tree(record: Record, patch: str, base: Path, tree: Path) -> list[str]:
    """A copy of the base with a model's patch and the record's tests; the sealed files that the patch touched.

    PatchError when the model's patch does not apply, Unfit when the test patch does not.
    """
    shutil.copytree(base, tree, symlinks=True)
    touched = patches.apply(patch, tree)
    if patch.strip() and not touched:
        raise patches.PatchError("it is not a unified diff, with '--- a/…' and '+++ b/…' above its changes")
    try:
        tests, solution = patches.paths(record.test_patch), patches.paths(record.gold)
        named = {test.partition("::")[0] for test in record.tests if "::" in test}
        sealed = sorted(
            path for path in touched if path in tests | named or (is_sealed(path) and path not in solution)
        )
        for path in sorted(tests | {*sealed}):
            restore(path, base, tree)
        patches.apply(record.test_patch, tree)
    except patches.PatchError as error:
        raise Unfit(f"the test patch of {record.id!r} does not fit its base: {error}") from None
    return sealed


def is_sealed(path: str) -> bool:
    """Whether a file is a test, or steers the tests."""
    *folders, name = PurePosixPath(path).parts
    stem, _, ending = name.rpartition(".")
    if (
        name in _STEERING
        or path == "bin/test"
        or ending == "pth"
        or any(folder.endswith((".egg-info", ".dist-info")) for folder in folders)
    ):
        return True
    if {*folders} & _FOLDERS or any(_is_test(folder) for folder in folders):
        return True
    # A module of the name of a tool, where the tool would be looked for.
    top = [folder for folder in (*folders, stem) if folder not in ("src", "lib")][:1]
    return bool({*top} & _SHADOWING) or (ending == "py" and _is_test(name))


def _is_test(name: str) -> bool:
    stem = name.removesuffix(".py")
    return name.endswith(".py") and (stem.startswith("test_") or stem.endswith(("_test", "_tests")))


def restore(path: str, base: Path, tree: Path) -> None:
    """Make a file what it is in the base: there, with this content, or not there."""
    place, original = patches.inside(tree, path), patches.inside(base, path)
    if place.is_dir() and not original.is_dir():
        shutil.rmtree(place)
    if original.is_file():
        # Where a folder is wanted, a file of the model's may be.
        for parent in reversed(place.relative_to(tree).parents):
            if (tree / parent).is_file():
                (tree / parent).unlink()
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(original, place)
    else:
        patches.remove(tree, path)
