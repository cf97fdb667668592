"""Folders of instances that are made ahead."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aenv.base.errors import InvalidRequest
from aenv.engines import files_below
from aenv.engines.folder import InstanceFolder
from aenv.engines.instance_state import InstanceState
from aenv.engines.native.instance_folders import SPARES, InstanceFolders

MADE_AND_KILLED = """
import os, signal, sys
from pathlib import Path
from aenv.engines.native.instance_folders import InstanceFolders
InstanceFolders(Path(sys.argv[1])).refill()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """Short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "run", "instances")


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*"))


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_folder_has_a_socket_that_listens_and_is_for_its_owner_only(root: Path, is_ahead: bool) -> None:
    folders = InstanceFolders(root)
    if is_ahead:
        folders.refill()
    folder, listener = folders.take("one")
    with listener:
        assert folder.path == root / "one" and folder.path.stat().st_mode & 0o777 == 0o700
        assert answers(folder.socket) and folder.socket.parent == folder.path
    folders.close()
    assert names(root) == ["one"]


def test_an_instance_that_has_a_folder_keeps_it(root: Path) -> None:
    folders = InstanceFolders(root)
    first, listener = folders.take("one")
    first.write_state(InstanceState(pid=1))
    with listener, pytest.raises(FileExistsError):
        folders.take("one")
    assert names(root) == ["one"] and InstanceFolder(root, "one").read_state() == InstanceState(pid=1)


def test_an_id_that_could_be_another_place_is_refused(root: Path) -> None:
    with pytest.raises(InvalidRequest, match="bad instance id"):
        InstanceFolders(root).take("../one")


def test_a_socket_whose_path_is_too_long_is_elsewhere(tmp_path: Path) -> None:
    folder, listener = InstanceFolders(tmp_path / ("long" * 30)).take("one")
    with listener:
        assert answers(folder.socket) and folder.socket.parent != folder.path
    folder.remove()
    assert not folder.socket.exists()


def test_as_many_are_made_ahead_as_were_taken_and_closing_removes_them(root: Path) -> None:
    folders = InstanceFolders(root)
    folders.refill()
    assert len(names(root)) == SPARES
    folders.take("one")[1].close()
    folders.refill()
    assert len(names(root)) == SPARES + 1
    folders.close()
    assert names(root) == ["one"]


@pytest.mark.parametrize("removes", [InstanceFolders.refill, InstanceFolders.close])
def test_what_a_process_that_was_killed_had_made_ahead_is_removed_by_the_next(root: Path, removes: object) -> None:
    subprocess.run([sys.executable, "-c", MADE_AND_KILLED, str(root)], check=False)
    left = names(root)
    assert len(left) == SPARES
    folders = InstanceFolders(root)
    removes(folders)  # type: ignore[operator]
    assert not set(left) & set(names(root))
    folders.close()


def test_what_another_engine_has_made_ahead_stays(root: Path) -> None:
    first, second = InstanceFolders(root), InstanceFolders(root)
    first.refill()
    second.close()
    folder, listener = first.take("one")
    with listener:
        assert answers(folder.socket)
    first.close()


def test_a_folder_of_which_something_is_left_is_not_taken_for_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, listener = InstanceFolders(root).take("one")
    listener.close()
    (folder.path / "log").write_text("what it printed")

    def remove(parent: int, name: str) -> None:
        raise FileNotFoundError(name)

    with monkeypatch.context() as patched:
        patched.setattr(files_below, "remove", remove)
        with pytest.raises(FileNotFoundError):
            folder.remove()
    folder.remove()
    assert names(root) == []
    folder.remove()  # fine when it is gone


def test_a_state_that_was_cut_short_is_the_state_before(root: Path) -> None:
    folder, listener = InstanceFolders(root).take("one")
    listener.close()
    folder.write_state(InstanceState(pid=1, tools=[]))
    folder.write_state(InstanceState(tools=[{"name": "a"}]))
    file = next(root.glob("one/state*"))
    os.truncate(file, file.stat().st_size - 3)
    assert InstanceFolder(root, "one").read_state() == InstanceState(pid=1, tools=[])


def test_a_state_that_is_used_again_is_not_emptied_for_which_its_next_user_would_wait_for_the_disk(
    root: Path,
) -> None:
    folders = InstanceFolders(root)
    folder, listener = folders.take("one")
    listener.close()
    folder.write_state(InstanceState(pid=1))
    assert folders.put_back(folder)
    assert next(root.glob("*/state*")).read_bytes() == b"{}\n"
    folders.close()


def test_the_folder_of_an_ended_instance_is_used_again_but_nothing_that_was_in_it(root: Path) -> None:
    folders = InstanceFolders(root)
    ended, before = folders.take("one")
    ended.write_state(InstanceState(pid=1, tools=[{"name": "theirs"}]))
    which = ended.path.stat().st_ino
    assert folders.put_back(InstanceFolder(root, "one")) and not ended.exists()
    folder, listener = folders.take("two")
    before.setblocking(False)
    with before, listener:
        assert folder.path.stat().st_ino == which
        assert InstanceFolder(root, "two").read_state() == InstanceState()
        assert answers(folder.socket)
        with pytest.raises(BlockingIOError):  # whoever kept the socket of the first is not called
            before.accept()
    folders.close()
    assert names(root) == ["two"]


def test_a_folder_that_holds_more_is_not_used_again(root: Path) -> None:
    folders = InstanceFolders(root)
    folder, listener = folders.take("one")
    listener.close()
    (folder.path / "more").touch()
    assert not folders.put_back(folder)
    assert (folder.path / "more").exists()


def test_what_is_kept_to_be_used_again_is_removed_at_the_end(root: Path) -> None:
    folders = InstanceFolders(root)
    for number in range(3):
        folders.take(f"one-{number}")[1].close()
    for number in range(3):
        assert folders.put_back(InstanceFolder(root, f"one-{number}"))
    assert len(names(root)) == 3
    folders.close()
    assert names(root) == []


def test_what_a_process_with_the_same_pid_left_is_swept(root: Path) -> None:
    before = root / f"spare.{os.getpid()}-1.0badcafe.1"  # in a container every gateway has the same pid
    before.mkdir(parents=True)
    folders = InstanceFolders(root)
    folders.refill()
    assert not before.exists()
    assert len(names(root)) == SPARES
    folders.close()
