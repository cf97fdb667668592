"""The sockets that containers make: the gateway connects to these, and to nothing that is put in their place."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from aenv.base.errors import StartFailed
from aenv.base.sockets import connect_unix
from aenv.engines.docker.container_programs import SHARED_RUN, take_socket


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """The folder that the container sees."""
    (tmp_path / SHARED_RUN).mkdir()
    return tmp_path / SHARED_RUN


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_socket_that_was_taken_stays_the_same_whatever_the_container_does(tmp_path: Path, shared: Path) -> None:
    with listening(shared / "socket") as inside, listening(tmp_path / "hosts"):
        taken = take_socket(tmp_path, "socket")
        (shared / "socket").unlink()
        (shared / "socket").symlink_to(tmp_path / "hosts")
        with connect_unix(str(taken)), inside.accept()[0] as accepted:
            assert accepted
        with pytest.raises(StartFailed, match="no socket 'socket', but another file"):
            take_socket(tmp_path, "socket")
    assert not taken.exists()


def test_what_is_not_a_socket_is_not_taken(tmp_path: Path, shared: Path) -> None:
    os.mkfifo(shared / "socket")
    with pytest.raises(StartFailed, match="no socket 'socket', but another file"):
        take_socket(tmp_path, "socket")
    with pytest.raises(StartFailed, match="no socket 'port-80': No such file"):
        take_socket(tmp_path, "port-80")
    assert sorted(os.listdir(tmp_path)) == [SHARED_RUN]
