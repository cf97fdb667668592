"""An environment that answers the gateway's connections itself, with the kind of answer that its argument names.

It gives the runtime another socket to serve. With the argument "nonsense" it says, before the runtime does, that
it is ready, in words that cannot be kept.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import threading
from collections.abc import Iterable

from aenv import register_tool


@register_tool
def say() -> str:
    """Never called: the runtime has no caller."""
    return "hello"


ARGUMENT = sys.argv[1]
PIECE = b"x" * 65536
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
EVENTS = OK + b"content-type: text/event-stream\r\n\r\n"
FORGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
HISTORY = OK + b"content-type: application/json\r\ncontent-length: "
CALLS = b'{"success": true, "data": {"calls": [' + b'{"name": "x"},' * (1 << 22) * (ARGUMENT == "long history")
CALLS += b"{}]}}"
ANSWERS: dict[str, tuple[bytes, Iterable[bytes]]] = {
    "body without end": (OK + b"\r\n", itertools.repeat(PIECE)),
    "chunks without end": (CHUNKED, itertools.repeat(b"10000\r\n" + PIECE + b"\r\n")),
    "events without end": (EVENTS, itertools.repeat(b"data: x\r\n\r\n" * 4096)),
    # These end after some hundred MiB: a gateway that takes them in has failed by then, and the host must survive.
    "head without end": (OK + b"x: ", itertools.repeat(PIECE, 4096)),
    "headers without end": (OK, itertools.repeat(b"x: y\r\n" * 8192, 4096)),
    "interim answers without end": (b"", itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 2048, 4096)),
    "chunk that is too large": (CHUNKED + b"f" * 17 + b"\r\n", itertools.repeat(PIECE)),
    "nothing": (b"", ()),
    "two replies": (OK + b"content-length: 2\r\n\r\nok" + FORGED, ()),
    "two lengths": (OK + b"content-length: 2\r\ncontent-length: 200\r\n\r\nok" + FORGED, ()),
    "chunks and a length": (OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + FORGED, ()),
    "cookies": (OK + b'set-cookie: forged=1\r\nclear-site-data: "*"\r\ncontent-length: 2\r\n\r\nok', ()),
    "long history": (HISTORY + str(len(CALLS)).encode() + b"\r\n\r\n", (CALLS,)),
}


def answer(connection: socket.socket) -> None:
    connection.recv(65536)
    first, rest = ANSWERS[ARGUMENT]
    try:
        connection.sendall(first)
        for piece in rest:
            connection.sendall(piece)
        connection.recv(1)
    except OSError:
        pass


def serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def take_listener() -> socket.socket | None:
    """The socket that the gateway connects to; the runtime is left with one that has no client."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            found = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        if found.family == socket.AF_UNIX and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            decoy = socket.socket(socket.AF_UNIX)
            decoy.bind("/run/decoy")
            decoy.listen()
            os.dup2(decoy.fileno(), number)
            found.setblocking(True)
            return found
        found.detach()
    return None


def say_nonsense() -> None:
    """On every channel that is open while this is loaded."""
    tools = b'[{"name": "x", "inputSchema": {"default": NaN, "x": "\\ud800"}}]'
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            found = socket.socket(fileno=os.dup(number))
            if found.family == socket.AF_UNIX and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.send(b'{"ready": true, "tools": ' + tools + b"}\n")


if ARGUMENT == "nonsense":
    say_nonsense()
elif (taken := take_listener()) is not None:
    threading.Thread(target=serve, args=(taken,), daemon=True).start()
