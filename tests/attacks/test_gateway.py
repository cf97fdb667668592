"""Attacks on the gateway and, through it, on other instances.

As root only: the gateway does not know whose its engine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aenv.engines.base import InstanceSpec
from aenv.engines.native.engine import NativeEngine
from aenv.roots.host import host_root
from aenv.sandbox.root import Root
from tests.gateways import Gateway, composed, listening, make_project

MEBIBYTE = 1 << 20

# It gives the runtime another socket to serve, and answers the gateway's connections itself.
HOSTILE = '''
import itertools, os, socket, threading

from aenv import register_tool


@register_tool
def say() -> str:
    """Never called: the runtime serves nobody."""
    return "hello"


PIECE = b"x" * 65536
ANSWERS = {
    "body without end": [b"HTTP/1.1 200 OK\\r\\n\\r\\n", itertools.repeat(PIECE)],
    "chunks without end": [
        b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n",
        itertools.repeat(b"10000\\r\\n" + PIECE + b"\\r\\n"),
    ],
    "events without end": [
        b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\n\\r\\n",
        itertools.repeat(b"data: x\\r\\n\\r\\n" * 4096),
    ],
    # These end after some hundred MiB: who takes them in has failed by then, and shall not take the host along.
    "head without end": [b"HTTP/1.1 200 OK\\r\\nx: ", itertools.repeat(PIECE, 4096)],
    "headers without end": [b"HTTP/1.1 200 OK\\r\\n", itertools.repeat(b"x: y\\r\\n" * 8192, 4096)],
    "interim answers without end": [itertools.repeat(b"HTTP/1.1 100 Continue\\r\\n\\r\\n" * 2048, 4096)],
    "chunk that is too large": [
        b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n" + b"f" * 17 + b"\\r\\n",
        itertools.repeat(PIECE),
    ],
    "nothing": [],
}


def answer(connection):
    connection.recv(65536)
    try:
        for part in ANSWERS[os.environ["HOSTILE"]]:
            for piece in [part] if isinstance(part, bytes) else part:
                connection.sendall(piece)
        connection.recv(1)
    except OSError:
        pass


def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


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
        threading.Thread(target=serve, args=(found,), daemon=True).start()
        break
    found.detach()
'''
# With the host's network; it asks the gateway, and tells the status.
ASKING = '''
import http.client, json

from aenv import register_tool


@register_tool
def ask(port: int, target: str, headers: dict) -> dict:
    """What a server on this network says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    headers = {"content-type": "application/json", **headers}
    connection.request("POST", target, json.dumps({"text": "hello"}), headers)
    reply = connection.getresponse()
    return {"status": reply.status, "text": reply.read().decode()}
'''
ENDLESS = ["body without end", "chunks without end", "events without end"]
REFUSED = ["head without end", "headers without end", "interim answers without end", "chunk that is too large"]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    if os.geteuid() != 0:
        pytest.skip("the engine of this gateway is root's")
    home = tmp_path / "home"
    root = host_root(home)

    async def root_of(spec: InstanceSpec) -> Root:
        return root

    projects = [
        make_project(tmp_path),
        make_project(tmp_path, "hostile", code=HOSTILE),
        make_project(tmp_path, "asking", code=ASKING, network="full"),
    ]
    async with (
        NativeEngine(home, root_of) as engine,
        composed(home, *projects, engine=engine) as made,
        listening(made) as gateway,
    ):
        gateway.engine = engine  # type: ignore[attr-defined]
        yield gateway
        for id in await engine.running():
            await engine.destroy(id)


async def hostile(gateway: Gateway, how: str) -> str:
    created = await gateway.create("hostile@1.0.0", environment_variables={"HOSTILE": how})
    return str(created["id"])


@contextlib.asynccontextmanager
async def asked(gateway: Gateway, id: str) -> AsyncIterator[asyncio.StreamReader]:
    """What the gateway says to a client that has asked the instance, and reads as slowly as it likes."""
    reader, writer = await asyncio.open_connection(gateway.data.host, gateway.data.port, limit=MEBIBYTE)
    writer.write(
        f"GET /instances/{id}/x HTTP/1.1\r\nhost: {gateway.data.host}:{gateway.data.port}\r\n\r\n".encode()
    )
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def neighbours_answer(gateway: Gateway, id: str, times: int = 20) -> None:
    for number in range(times):
        assert await gateway.call(id, "echo", text=str(number)) in (str(number), {"result": str(number)})


# Answers


@pytest.mark.parametrize("how", ENDLESS)
async def test_an_answer_without_end_is_passed_on_as_it_is_read_and_no_faster(gateway: Gateway, how: str) -> None:
    neighbour = (await gateway.create())["id"]
    id = await hostile(gateway, how)
    before = psutil.Process().memory_info().rss
    async with asked(gateway, id) as reader:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await neighbours_answer(gateway, neighbour)  # while nobody reads the other
        read = 0
        while read < 8 * MEBIBYTE:
            read += len(await reader.read(MEBIBYTE))
        await neighbours_answer(gateway, neighbour)
    assert psutil.Process().memory_info().rss - before < 64 * MEBIBYTE
    await neighbours_answer(gateway, neighbour)


@pytest.mark.parametrize("how", REFUSED)
async def test_a_head_without_end_is_a_bad_gateway(gateway: Gateway, how: str) -> None:
    neighbour = (await gateway.create())["id"]
    id = await hostile(gateway, how)
    before = psutil.Process().memory_info().rss
    async with asyncio.timeout(10), asked(gateway, id) as reader:
        first = await reader.readline()
        # What was wrong came after a good head: then the connection breaks off.
        assert first.startswith((b"HTTP/1.1 502", b"HTTP/1.1 200")), first
        if how != "chunk that is too large":
            assert first.startswith(b"HTTP/1.1 502")
        with contextlib.suppress(ConnectionError):
            while first.startswith(b"HTTP/1.1 200") and await reader.read(MEBIBYTE):
                pass
    assert psutil.Process().memory_info().rss - before < 64 * MEBIBYTE
    await neighbours_answer(gateway, neighbour)


async def test_answers_that_never_come_hold_up_nobody(gateway: Gateway) -> None:
    neighbour = (await gateway.create())["id"]
    id = await hostile(gateway, "nothing")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            await stack.enter_async_context(asked(gateway, id))
        await neighbours_answer(gateway, neighbour)
        for _ in range(100):  # and clients that never come to an end with what they ask
            _, writer = await asyncio.open_connection(gateway.data.host, gateway.data.port)
            stack.callback(writer.close)
            writer.write(f"POST /instances/{neighbour}/tools/echo HTTP/1.1\r\ncontent-length: 9".encode())
        await neighbours_answer(gateway, neighbour)
    await gateway.ask("DELETE", f"/env-instance/{id}")
    await neighbours_answer(gateway, neighbour)


@pytest.mark.parametrize("how", ENDLESS + REFUSED)
async def test_these_answers_have_no_end_for_who_asks_the_instance_itself(gateway: Gateway, how: str) -> None:
    id = await hostile(gateway, how)
    engine: Any = gateway.engine  # type: ignore[attr-defined]
    address = (await engine.running())[id]
    reader, writer = await asyncio.open_unix_connection(address.origin.socket, limit=MEBIBYTE)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    read = 0
    while read < 64 * MEBIBYTE:
        read += len(await reader.read(MEBIBYTE))
    writer.close()


# Tokens


async def test_an_instance_reaches_no_other_with_its_own_token(gateway: Gateway) -> None:
    attacker, other = await asyncio.gather(gateway.create("asking@1.0.0"), gateway.create())
    mine = {"authorization": f"Bearer {attacker['token']}"}
    by_id = {"AEnvCore-EnvInstance-ID": other["id"]}
    port = gateway.data.port
    for target, headers in [
        (f"/instances/{other['id']}/tools/echo", mine),
        ("/tools/echo", {**mine, **by_id}),
        (f"/instances/{attacker['id']}/../{other['id']}/tools/echo", mine),
        (f"/instances/{attacker['id']}/tools/../../{other['id']}/tools/echo", mine),
        ("/tools/echo", {"authorization": mine["authorization"].replace(attacker["id"], other["id"])}),
    ]:
        status, said = await _asked(gateway, attacker["id"], port, target, headers)
        assert (status >= 400, "hello" in said) == (True, False), (target, status, said)


async def test_with_the_other_ones_token_it_would(gateway: Gateway) -> None:
    attacker, other = await asyncio.gather(gateway.create("asking@1.0.0"), gateway.create())
    theirs = {"authorization": f"Bearer {other['token']}"}
    target = f"/instances/{other['id']}/tools/echo"
    status, said = await _asked(gateway, attacker["id"], gateway.data.port, target, theirs)
    assert (status, "hello" in said) == (200, True)


async def _asked(gateway: Gateway, id: str, port: int, target: str, headers: dict[str, str]) -> tuple[int, str]:
    found = await gateway.call(id, "ask", port=port, target=target, headers=headers)
    return found["status"], found["text"]
