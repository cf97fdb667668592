"""`base/paths.py`: a path that others wrote stays below its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from aenv.base.paths import below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "sub").mkdir(parents=True)
    (made / "sub" / "file").write_text("ours")
    (tmp_path / "data-of-others").write_text("not ours")
    (made / "inward").symlink_to("sub/file")
    (made / "outward").symlink_to("../data-of-others")
    (made / "loop").symlink_to("loop")
    return made


@pytest.mark.parametrize("path", ["sub/file", "inward", "sub/../sub/file", "./sub//file"])
def test_what_lies_below_is_found_by_any_of_its_names(folder: Path, path: str) -> None:
    assert below(folder, path) == (folder / "sub" / "file").resolve()


def test_an_absolute_path_counts_when_it_lies_below(folder: Path) -> None:
    assert below(folder, folder / "sub") == (folder / "sub").resolve()


@pytest.mark.parametrize(
    "path", ["../data-of-others", "outward", "/etc/passwd", "sub/../../data-of-others", "loop", "missing", "a\0b"]
)
def test_what_leads_out_or_is_not_there_is_nothing(folder: Path, path: str) -> None:
    assert below(folder, path) is None


def test_a_folder_that_is_a_link_is_the_folder_behind_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("data")
    assert below(tmp_path / "link", "inward") == (folder / "sub" / "file").resolve()
