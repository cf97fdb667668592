"""A descriptor that is slow to close, passed to the gateway: reading the connection would close it, and wait.

A TCP socket with SO_LINGER and bytes that its peer does not read takes as long to close as its owner has set. Two
walls stand against it: the gateway's sockets take no descriptors (SO_PASSRIGHTS, Linux 6.16), and the sockets of
instances do not linger (seccomp). Each is tried without the other.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.base import sockets
from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.rootfs import Rootfs
from tests.attacks.engines import AttackedEngine
from tests.attacks.served import Served, served
from tests.gateways import Gateway, composed, listening, make_project
from tests.ordinary import OrdinaryUser

SECONDS = 100  # much longer than a test may take

# It answers on the socket that it was given in place of the runtime, and sends the descriptor before the answer.
LINGERING = f"""
import os, socket, struct, threading

def slow():
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind(("127.0.0.1", 0))
    server.listen()
    ours = socket.socket()
    ours.connect(server.getsockname())
    theirs = server.accept()[0]
    ours.setblocking(False)
    try:
        while True:
            ours.send(bytes(65536))
    except BlockingIOError:
        pass
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, {SECONDS}))
    return ours, theirs

KEPT = []

def answer(connection):
    while connection.recv(65536):
        ours, theirs = slow()
        lingers = struct.unpack("ii", ours.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0]
        KEPT.append(theirs)
        try:
            socket.send_fds(connection, [b"HTTP/1.1 200 OK\\r\\n"], [ours.fileno()])
            said = "sent"
        except OSError as error:
            connection.sendall(b"HTTP/1.1 200 OK\\r\\n")
            said = error.strerror
        ours.detach()  # never closed here: that would wait, too
        body = f"{{said}}, lingers {{lingers}}".encode()
        connection.sendall(b"content-length: %d\\r\\n\\r\\n%b" % (len(body), body))

def serve(listener):
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

for number in map(int, os.listdir("/proc/self/fd")):
    try:
        found = socket.socket(fileno=os.dup(number))
    except OSError:
        continue
    if found.family == socket.AF_UNIX and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        decoy = socket.socket(socket.AF_UNIX)
        decoy.bind("\\0decoy-%d" % os.getpid())
        decoy.listen()
        os.dup2(decoy.fileno(), number)
        found.setblocking(True)
        threading.Thread(target=serve, args=(found,), daemon=True).start()
        break
    found.detach()
"""


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("projects")
    return [make_project(folder), make_project(folder, "lingering", code=LINGERING)]


@pytest.fixture(params=["process", "root", "user"])
def gateway(request: pytest.FixtureRequest, user: OrdinaryUser, projects: list[Path]) -> Iterator[Served]:
    """Real ones: without any isolation, run by root, and run by an ordinary user."""
    engine = ["--engine", "process"] if request.param == "process" else []
    with served(user if request.param == "user" else None, projects=projects, arguments=engine) as gateway:
        yield gateway


def test_a_descriptor_that_is_slow_to_close_is_not_taken_by_the_gateway(gateway: Served) -> None:
    attacker, neighbour = gateway.create("lingering@1.0.0")["id"], gateway.create()["id"]
    reply = gateway.ask("GET", f"/instances/{attacker}/x", data_port=True)
    with socket.socket(socket.AF_UNIX) as probe:
        can_be_refused = sockets.refuse_descriptors(probe)  # by newer kernels
    if can_be_refused:
        assert reply.body.startswith(b"Operation not permitted"), reply.body
    for _ in range(5):
        assert gateway.call(neighbour, "echo", text="still here").status == 200
        assert gateway.ask("GET", "/health").status == 200


@pytest.fixture
async def without_the_option(
    tmp_path: Path, projects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gateway]:
    """A gateway of root's that knows no SO_PASSRIGHTS, as on a kernel before 6.16."""
    if os.geteuid() != 0:
        pytest.skip("the engine of this gateway is root's")
    monkeypatch.setattr("aenv.base.sockets.refuse_descriptors", lambda connection: False)
    home = tmp_path / "home"
    root = host_root(home)

    async def root_of(spec: InstanceSpec) -> Rootfs:
        return root

    async with (
        NativeEngine(home, root_of) as engine,
        composed(home, *projects, engine=engine) as made,
        listening(made) as gateway,
    ):
        yield gateway
        for id in await engine.running():
            await engine.destroy(id)


async def test_where_the_kernel_passes_descriptors_those_of_an_instance_do_not_linger(
    without_the_option: Gateway,
) -> None:
    gateway = without_the_option
    attacker, neighbour = await asyncio.gather(gateway.create("lingering@1.0.0"), gateway.create())
    response = await gateway.pool.request(gateway.data, "GET", f"/instances/{attacker['id']}/x")
    assert await response.read() == b"sent, lingers 0"
    for number in range(5):
        assert await gateway.call(neighbour["id"], "echo", text=str(number)) == str(number)


def test_inside_a_socket_can_be_told_to_linger_and_does_not(engine: AttackedEngine, instance: str) -> None:
    code = (
        "import socket, struct; s = socket.socket();"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 9));"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1);"
        "print(*struct.unpack('ii', s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)),"
        " s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))"
    )
    done: Any = engine.ask("exec", id=instance, command=["python3", "-c", code])
    assert done["stdout"].split() == ["0", "0", "1"], done


def test_outside_it_lingers() -> None:
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 9))
        assert struct.unpack("ii", made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 9)
