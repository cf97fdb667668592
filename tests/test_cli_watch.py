"""The watcher of `aenv run --reload`: what counts as source, and that no change is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aenv.cli.watch import Watcher, look


def made(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("pass\n")
    return folder


def names(path: Path, folder: Path) -> set[str]:
    return {str(Path(file).relative_to(folder)) for file in look(path)}


def test_source_is_python_and_the_configuration_and_nothing_hidden_or_installed(tmp_path: Path) -> None:
    ours = {"config.json", "main.py", "src/deep/tool.py"}
    others = ("notes.txt", ".hidden.py", ".git/a.py", "src/__pycache__/a.py", "venv/a.py", "src/node_modules/a.py")
    assert names(made(tmp_path, *ours, *others), tmp_path) == ours


def test_of_a_single_file_the_folder_counts_and_nothing_below_it(tmp_path: Path) -> None:
    made(tmp_path, "server.py", "beside.py", "below/other.py")
    assert names(tmp_path / "server.py", tmp_path) == {"server.py", "beside.py"}


@pytest.mark.parametrize("change", ["written", "added", "removed", "replaced"])
async def test_a_change_before_the_wait_is_told_of(tmp_path: Path, change: str) -> None:
    watcher = Watcher(made(tmp_path, "src/a.py", "src/b.py"))
    match change:
        case "written":
            (tmp_path / "src" / "a.py").write_text("other\n")
        case "added":
            made(tmp_path, "src/new/c.py")
        case "removed":
            (tmp_path / "src" / "b.py").unlink()
        case "replaced":
            made(tmp_path, "src/saved.txt").joinpath("src/saved.txt").rename(tmp_path / "src" / "a.py")
    await watcher.changed()


async def test_a_change_whose_wait_was_cancelled_is_told_of_by_the_next(tmp_path: Path) -> None:
    watcher = Watcher(made(tmp_path, "a.py"))
    (tmp_path / "a.py").write_text("one\n")
    waiting = asyncio.ensure_future(watcher.changed())
    await asyncio.sleep(0)  # it has seen the change, and waits for it to settle
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await watcher.changed()
