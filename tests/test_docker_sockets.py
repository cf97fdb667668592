"""The sockets that instances make: the gateway connects to these, and to nothing that is put in their place."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from aenv.base.errors import StartFailed
from aenv.base.sockets import connect_unix
from aenv.engines.folder import take_socket


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The folder that the instance sees."""
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_socket_that_was_taken_stays_the_same_whatever_the_container_does(tmp_path: Path, shared: Path) -> None:
    taken = tmp_path / "socket"
    with listening(shared / "socket") as inside, listening(tmp_path / "hosts"):
        take_socket(shared / "socket", taken)
        (shared / "socket").unlink()
        (shared / "socket").symlink_to(tmp_path / "hosts")
        with connect_unix(str(taken)), inside.accept()[0] as accepted:
            assert accepted
        with pytest.raises(StartFailed, match="something else than a socket"):
            take_socket(shared / "socket", taken)
    assert not taken.exists()


def test_what_is_not_a_socket_is_not_taken(tmp_path: Path, shared: Path) -> None:
    os.mkfifo(shared / "pipe")
    (shared / "folder").mkdir()
    for name, why in (
        ("pipe", "something else"),
        ("folder", "no socket: "),
        ("nothing", "no socket: No such file"),
    ):
        with pytest.raises(StartFailed, match=f"the instance has made {why}"):
            take_socket(shared / name, tmp_path / "socket")
    assert os.listdir(tmp_path) == ["shared"]
