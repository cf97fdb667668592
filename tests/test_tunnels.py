"""WebSockets through the data path to servers in instances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from aenv.control.gateway import tunnels
from tests.gateways import Gateway, make_project, running_gateway

pytestmark = pytest.mark.slow

# A WebSocket server of few lines: echoes frames, floods when asked, and tells what it was sent.
SERVER = '''
import asyncio, base64, hashlib
from aenv import register_tool

KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
state = {"sent": 0, "ended": 0}

async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    headers = dict(line.split(b": ", 1) for line in head.split(b"\\r\\n")[1:-2])
    headers = {name.lower(): value for name, value in headers.items()}
    state["head"] = head.decode()
    if head.startswith(b"GET /no"):
        writer.write(b"HTTP/1.1 418 No\\r\\ncontent-length: 3\\r\\nset-cookie: a=b\\r\\n\\r\\nno!")
        await writer.drain()
        return writer.close()
    accept = base64.b64encode(hashlib.sha1(headers[b"sec-websocket-key"] + KEY).digest())
    writer.write(b"HTTP/1.1 101 Yes\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n")
    writer.write(b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
    try:
        while True:
            first, second = await reader.readexactly(2)
            length, mask = second & 127, await reader.readexactly(4)
            data = bytes(one ^ mask[at % 4] for at, one in enumerate(await reader.readexactly(length)))
            if data == b"flood":
                while True:
                    writer.write(bytes([0x82, 126, 0xff, 0x00]) + bytes(0xff00))
                    await writer.drain()
                    state["sent"] += 0xff00
            writer.write(bytes([first, length]) + data)
            if first == 0x88:
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        state["ended"] += 1
        writer.close()

@register_tool
async def start() -> dict:
    """Serve on a free port."""
    state["server"] = await asyncio.start_server(serve, "127.0.0.1", 0)
    return {"port": state["server"].sockets[0].getsockname()[1]}

@register_tool
def told() -> dict:
    """What was seen."""
    return {name: value for name, value in state.items() if name != "server"}
'''


@pytest.fixture(params=["process", "native"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    project = make_project(tmp_path, "sockets", code=SERVER)
    async with running_gateway(tmp_path / "home", project, engine=request.param) as running:
        yield running


async def test_a_websocket_reaches_a_port_of_an_instance_and_nothing_of_the_gateway_does(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await gateway.create("sockets@1.0.0")
    id = made["id"]
    port = (await gateway.call(id, "start"))["port"]
    body = {"port": port, "expiration_time_in_minutes": 5}
    _, reply = await gateway.ask("POST", f"/env-instance/{id}/presign-url", body)
    path = reply["data"]["url"].split("/ports/")[1]
    for number in (gateway.address.data_port, gateway.address.port):
        where = f"ws://127.0.0.1:{number}/ports/{path}"
        bearer = {
            "Authorization": "Bearer aenv-aaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
            "Cookie": "mine=1",
        }
        async with connect(where + "live?a=1", additional_headers=bearer, compression=None) as socket:
            for said in ("hello", "日本", b"\x00\xff"):
                await socket.send(said)
                assert await socket.recv() == said
        head = (await gateway.call(id, "told"))["head"]
        assert head.startswith("GET /live?a=1 HTTP/1.1") and "aenv-aaaa" not in head and path[:20] not in head
        with pytest.raises(InvalidStatus) as refused:
            await connect(where + "no").__aenter__()
        response = refused.value.response
        assert (response.status_code, response.body, response.headers.get("set-cookie")) == (418, b"no!", None)
        with pytest.raises(InvalidStatus) as refused:
            await connect(where, additional_headers={"Origin": "http://evil.example"}).__aenter__()
        assert refused.value.response.status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{gateway.address.data_port}/ports/{path[:-5]}xxxx/").__aenter__()
    assert refused.value.response.status_code == 401
    await _a_flood_waits_in_the_instance(gateway, id, where)
    monkeypatch.setattr(tunnels, "IDLE", 0.3)
    async with connect(where, ping_interval=None) as socket:
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    async with connect(where, ping_interval=None) as socket:
        await gateway.ask("DELETE", f"/env-instance/{id}")
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def _a_flood_waits_in_the_instance(gateway: Gateway, id: str, where: str) -> None:
    async with connect(where, compression=None, max_queue=1, ping_interval=None) as socket:
        await socket.send("flood")
        before = -1
        while (sent := (await gateway.call(id, "told"))["sent"]) != before or not sent:
            before = sent
            await asyncio.sleep(0.2)  # until it stands still: what was sent is in the sockets on the way
        assert sent < 32 << 20
        socket.transport.abort()
    async with asyncio.timeout(20):
        while (await gateway.call(id, "told"))["ended"] < 3:
            await asyncio.sleep(0.05)
