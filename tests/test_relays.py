"""Relays: servers in an instance, reached from the host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aenv.base.addresses import Origin
from aenv.base.errors import TooManyRequests
from aenv.engines import proc
from aenv.engines.base import Network
from aenv.isolation.egress import PORT
from aenv.isolation.sandbox.relay import CONNECTIONS
from tests.relayed import Instance, Make, answer, close, connect, relayed, relays, same, until

pytestmark = pytest.mark.slow  # each starts an engine and a relay, which are programs


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    async with relayed(tmp_path) as make:
        yield make


@pytest.fixture
async def instance(make: Make) -> Instance:
    made: Instance = await make()
    return made


class TestBytes:
    async def test_pass_both_ways_and_each_side_ends_when_it_likes(self, instance: Instance) -> None:
        port = await instance.result("serve(echo)")
        reader, writer = await instance.connect(port)
        for text in (b"one", b"two" * 100_000):
            writer.write(text)
            assert await reader.readexactly(len(text)) == text
        writer.write_eof()
        assert await reader.read() == b"[end]"
        await close(writer)

    async def test_a_server_that_has_said_all_can_still_listen(self, instance: Instance) -> None:
        await instance.run("heard = []\ndone = threading.Event()")
        code = """
def talk(client):
    client.sendall(b"welcome")
    client.shutdown(socket.SHUT_WR)
    while data := client.recv(65536):
        heard.append(len(data))
    done.set()
result = serve(talk)
"""
        reader, writer = await instance.connect(await instance.run(code))
        assert await reader.read() == b"welcome"
        writer.write(b"x" * 1_000_000)
        await close(writer)
        assert await instance.result("done.wait(3) and sum(heard)") == 1_000_000

    async def test_a_server_at_the_other_loopback_address_is_reached(self, instance: Instance) -> None:
        code = "s = socket.create_server(('::1', 0), family=socket.AF_INET6)\nresult = s.getsockname()[1]"
        port = await instance.run(code)
        await instance.run("threading.Thread(target=lambda: echo(s.accept()[0]), daemon=True).start()")
        assert await answer(await instance.port(port), b"six") == b"six[end]"

    async def test_nothing_is_taken_from_a_client_that_the_server_does_not_read(self, instance: Instance) -> None:
        await instance.run("go = threading.Event()")
        code = """
def talk(client):
    go.wait()
    echo(client)
result = serve(talk)
"""
        origin = await instance.port(await instance.run(code))
        assert origin
        assert origin.socket
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(origin.socket)
            client.settimeout(0.5)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 100_000_000:
                    sent += client.send(b"x" * 65536)
            assert sent < 20_000_000  # what the kernel keeps, and a little
            await instance.run("go.set()")
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            got = 0
            while got < sent:
                got += len(await loop.sock_recv(client, 1 << 20))
            client.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(client, 100) == b"[end]"

    async def test_nothing_is_taken_from_a_server_that_the_client_does_not_read(self, instance: Instance) -> None:
        await instance.run("sent = [0]\nstuck = threading.Event()")
        code = """
def talk(client):
    client.settimeout(0.5)
    try:
        while sent[0] < 100_000_000:
            sent[0] += client.send(b"x" * 65536)
    except TimeoutError:
        stuck.set()
    client.close()
result = serve(talk)
"""
        origin = await instance.port(await instance.run(code))
        assert origin
        assert origin.socket
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(origin.socket)
            sent = await instance.result("stuck.wait(4) and sent[0]")
            assert 0 < sent < 20_000_000
            client.setblocking(False)
            got = 0
            while data := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                got += len(data)
        assert got == sent

    async def test_a_client_that_leaves_is_forgotten_even_by_a_server_that_does_not_notice(
        self, instance: Instance
    ) -> None:
        await instance.run("kept = []\ntalk = [kept.append]")
        origin = await instance.port(await instance.result("serve(lambda client: talk[0](client))"))
        for _ in range(CONNECTIONS + 5):
            _, writer = await connect(origin)
            writer.write(b"hello")
            await close(writer)
        while await instance.result("len(kept)") < CONNECTIONS + 5:
            pass
        await instance.run("talk[0] = echo")
        clients = [await connect(origin) for _ in range(CONNECTIONS)]
        for reader, writer in clients:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        for _, writer in clients:
            await close(writer)

    async def test_a_client_is_told_when_a_server_breaks_off(self, instance: Instance) -> None:
        code = """
import struct
def talk(client):
    client.recv(1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
result = serve(talk)
"""
        reader, writer = await instance.connect(await instance.run(code))
        writer.write(b"x")
        assert await reader.read() == b""
        await close(writer)


class TestMany:
    async def test_so_many_are_served_at_once_and_the_next_when_one_leaves(self, instance: Instance) -> None:
        await instance.run("came = []\ndef talk(client):\n    came.append(1)\n    echo(client)")
        origin = await instance.port(await instance.result("serve(talk)"))
        clients = [await connect(origin) for _ in range(CONNECTIONS)]
        waiting = await connect(origin)
        waiting[1].write(b"last")
        for reader, writer in clients:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        assert await instance.result("len(came)") == CONNECTIONS
        await close(clients.pop()[1])
        assert await waiting[0].readexactly(4) == b"last"
        for _, writer in (*clients, waiting):
            await close(writer)

    async def test_a_port_has_one_relay_however_often_it_is_asked_for(self, instance: Instance) -> None:
        port = await instance.result("serve(echo)")
        origins = await asyncio.gather(*(instance.port(port) for _ in range(10)))
        assert len(set(origins)) == 1
        assert await answer(origins[0], b"") == b"[end]"
        assert len(relays()) == 1

    async def test_ports_of_an_instance_are_bounded(self, instance: Instance) -> None:
        ports = [await instance.result("serve(echo)") for _ in range(17)]
        origins = [await instance.port(port) for port in ports[:16]]
        with pytest.raises(TooManyRequests, match="16 ports of instance"):
            await instance.port(ports[16])
        assert await answer(origins[15], b"x") == b"x[end]"


class TestWhoIsReached:
    async def test_a_port_on_which_nobody_listens_is_none(self, instance: Instance) -> None:
        port = await instance.result("serve(echo)")
        for nothing in (port - 1, port + 1, 0, -1, 65536):
            assert await instance.port(nothing) is None
        with socket.create_server(("127.0.0.1", 0)) as hosts:
            assert await instance.port(hosts.getsockname()[1]) is None

    async def test_a_port_is_found_however_long_the_path_of_the_home_is(self, tmp_path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="a") as short:
            long = tmp_path / ("a" * 100)
            long.mkdir()
            for home in (Path(short), long):
                async with relayed(home) as make:
                    instance = await make()
                    is_inside = instance.folder.socket.is_relative_to(home)
                    assert is_inside == (home != long)
                    port = await instance.result("serve(echo)")
                    assert await answer(await instance.port(port), b"x") == b"x[end]"

    async def test_a_connection_to_a_port_that_has_closed_meanwhile_is_closed(self, instance: Instance) -> None:
        port = await instance.result("serve(echo)")
        origin = await instance.port(port)
        assert await answer(origin, b"x") == b"x[end]"
        await instance.run(f"servers[{port}].shutdown(socket.SHUT_RDWR)\nservers[{port}].close()")
        reader, writer = await connect(origin)
        assert await reader.read() == b""
        await close(writer)
        assert await instance.port(port) is None

    async def test_the_way_out_is_no_port_of_the_instance(self, make: Make) -> None:
        instance = await make(network=Network("egress", ("site.example",)))
        assert await instance.result(f"socket.create_connection(('127.0.0.1', {PORT})).fileno() > 0")
        assert await instance.port(PORT) is None

    async def test_on_the_hosts_network_only_the_servers_of_the_instance_are_reached(self, make: Make) -> None:
        instance = await make(network=Network("full"))
        port = await instance.result("serve(echo)")
        origin = await instance.port(port)
        assert origin == Origin("127.0.0.1", port)
        reader, writer = await asyncio.open_connection(origin.host, origin.port)
        writer.write_eof()
        assert await reader.read() == b"[end]"
        await close(writer)
        with socket.create_server(("127.0.0.1", 0)) as hosts:
            assert await instance.port(hosts.getsockname()[1]) is None
        assert relays() == []


class TestEnds:
    async def test_a_relay_that_nobody_uses_ends_and_its_socket_goes(self, make: Make) -> None:
        instance = await make(idle=0.1)
        port = await instance.result("serve(echo)")
        origin = await instance.port(port)
        assert await answer(origin, b"x") == b"x[end]"
        await until(lambda: not os.path.exists(origin.socket))
        assert relays() == []
        assert await answer(await instance.port(port), b"y") == b"y[end]"

    async def test_who_was_just_told_where_to_connect_is_served(self, make: Make) -> None:
        instance = await make(idle=0.01)
        port = await instance.result("serve(echo)")
        for _ in range(20):
            assert await answer(await instance.port(port), b"x") == b"x[end]"
            await asyncio.sleep(0.005)  # so that it comes at every moment of a relay's end

    async def test_a_relay_in_use_does_not_end(self, make: Make) -> None:
        instance = await make(idle=0.05)
        reader, writer = await instance.connect(await instance.result("serve(echo)"))
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        (pid,) = relays()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await proc.ended(pid)
        writer.write_eof()
        assert await reader.read() == b"[end]"
        await close(writer)

    async def test_it_ends_with_the_instance_and_says_what_was_said_last(self, instance: Instance) -> None:
        code = """
import os
def talk(client):
    client.recv(1)
    client.sendall(b"last words")
    os._exit(0)
result = serve(talk)
"""
        origin = await instance.port(await instance.run(code))
        assert origin
        reader, writer = await connect(origin)
        bystander, other = await connect(origin)
        writer.write(b"x")
        assert await reader.read() == b"last words"
        assert await bystander.read() == b""
        await close(writer)
        await close(other)
        await until(lambda: relays() == [] and not os.path.exists(origin.socket or ""))

    async def test_stopping_leaves_no_process_socket_or_descriptor(self, instance: Instance) -> None:
        before = sorted(os.listdir(instance.folder.socket.parent))
        ports = [await instance.result("serve(echo)") for _ in range(3)]
        descriptors = len(os.listdir("/proc/self/fd"))
        origins = [await instance.port(port) for port in ports]
        assert await answer(origins[0], b"") == b"[end]"
        held = await connect(origins[0])
        held[1].write(b"x")
        assert await held[0].readexactly(1) == b"x"
        await instance.relays.stop("another")
        assert len(relays()) == 3
        await instance.relays.stop(instance.folder.id)
        assert await held[0].read() == b""
        await close(held[1])
        assert relays() == []
        assert sorted(os.listdir(instance.folder.socket.parent)) == before
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert await answer(await instance.port(ports[0]), b"x") == b"x[end]"  # it can be asked for again

    async def test_relays_of_a_gateway_that_was_killed_end_with_the_instance(
        self, instance: Instance, tmp_path: Path
    ) -> None:
        port = await instance.result("serve(echo)")
        code = f"""
import asyncio
from pathlib import Path
from aenv.engines.folder import InstanceFolder
from aenv.engines.native.relays import Relays
async def main():
    folder = InstanceFolder(Path({str(instance.folder.path.parent)!r}), {instance.folder.id!r})
    print((await Relays().origin(folder, folder.leader(), {port})).socket, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
        gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        assert gateway.stdout
        path = (await gateway.stdout.readline()).decode().strip()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        (pid,) = relays(gateway.pid)
        gateway.kill()
        await gateway.wait()
        writer.write(b"y")
        assert await reader.readexactly(1) == b"y"
        await instance.engine.destroy(instance.folder.id)
        assert await reader.read() == b""
        await close(writer)
        await until(lambda: proc.start_time(pid) is None)
        assert not os.path.exists(path)

    async def test_an_instance_that_has_ended_has_no_ports(self, instance: Instance) -> None:
        port = await instance.result("serve(echo)")
        await instance.engine.destroy(instance.folder.id)
        assert await instance.port(port) is None


async def test_a_relay_can_do_nothing_but_relay(instance: Instance) -> None:
    origin = await instance.port(await instance.result("serve(echo)"))
    assert await answer(origin, b"") == b"[end]"
    (pid,) = relays()
    status, insides = (
        dict(line.split(":\t", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines())
        for one in (pid, instance.leader.pid)
    )
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert (status["Uid"], status["Gid"]) == (insides["Uid"], insides["Gid"])
    if os.geteuid() == 0:  # what may not be dumped, root alone may look at
        assert os.listdir(f"/proc/{pid}/root/") == []
        assert {os.readlink(entry).partition(":")[0] for entry in Path(f"/proc/{pid}/fd").iterdir()} == {
            "/dev/null",
            "pipe",
            "socket",
            "anon_inode",
        }
        # The usual three, listener, process, epoll; those of the connection go when it has been closed.
        await until(lambda: len(os.listdir(f"/proc/{pid}/fd")) == 6)
        assert same(pid, instance.leader.pid, "user")
        assert same(pid, os.getpid(), "pid")


async def test_a_relay_that_crashes_is_reported_and_replaced(
    instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    port = await instance.result("serve(echo)")
    origin = await instance.port(port)
    assert origin
    assert await answer(origin, b"") == b"[end]"
    (pid,) = relays()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not os.path.exists(origin.socket or ""))
    assert f"the relay to port {port} ended: " in caplog.text
    assert await answer(await instance.port(port), b"x") == b"x[end]"
