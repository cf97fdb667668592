"""Memory that the kernel keeps for an instance: what waits in sockets and pipes counts for its limit, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.attacks.engines import AttackedEngine, Refused

LIMIT = 96 << 20
ENOUGH = 4 * LIMIT
"""What nothing may reach: sockets hold a few pages each above the limit, and each costs memory that counts."""

# Fills what it can until it holds ENOUGH; `held` is what others could still read.
FILL = """
import fcntl, os, resource, socket
KIND, ENOUGH = {kind!r}, {enough}
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
ends, held, piece = [], 0, b"x" * 65536

def fill(send):
    global held
    try:
        while held < ENOUGH:
            held += send(piece)
    except OSError:
        pass

try:
    if KIND == "tcp":
        server = socket.create_server(("127.0.0.1", 0))
        while held < ENOUGH:
            one = socket.create_connection(server.getsockname())
            ends += [one, server.accept()[0]]
            for end in ends[-2:]:
                end.setblocking(False)
                fill(end.send)
    elif KIND == "udp":
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(ENOUGH >> 20):
            ends.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            ends[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            ends[-1].bind(("127.0.0.1", 0))
            for _ in range(64):
                sender.sendto(b"x" * 32768, ends[-1].getsockname())
        for end in ends:
            end.setblocking(False)
            try:
                while True:
                    held += len(end.recv(65536))
            except OSError:
                pass
    elif KIND == "unix":
        while held < ENOUGH:
            for end in (pair := socket.socketpair()):
                end.setblocking(False)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
                fill(end.send)
            ends += pair
    elif KIND == "pipe":
        while held < ENOUGH:
            ends += (pair := os.pipe())
            try:
                fcntl.fcntl(pair[1], 1031, 1 << 20)  # F_SETPIPE_SZ
            except OSError:
                pass
            os.set_blocking(pair[1], False)
            fill(lambda data: os.write(pair[1], data))
except OSError:
    pass
said = held
"""
KINDS = ("tcp", "udp", "unix", "pipe")


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_in_sockets_and_pipes_is_limited(engine: AttackedEngine, kind: str) -> None:
    made = engine.ask("create", limits={"memory_bytes": LIMIT})
    try:
        if any(reason.startswith("memory") for reason in made["not_enforced"]):
            return  # and said so
        try:
            held = engine.evaluate(made["id"], FILL.format(kind=kind, enough=ENOUGH))
        except Refused:
            assert "memory" in engine.ask("ended", id=made["id"])  # it was ended for it
            return
        assert held < ENOUGH
    finally:
        engine.ask("destroy", id=made["id"])


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_it_is_not_where_there_is_no_limit(kind: str) -> None:
    code = FILL.format(kind=kind, enough=ENOUGH) + "print(said)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) >= ENOUGH
