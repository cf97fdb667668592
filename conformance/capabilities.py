"""What engines can do besides: logs, commands, files, ports. Each part is run for the engines that have it.

    class TestMyEngine(EngineConformance, CapabilityConformance):
        ...

Everything is asked of another engine object than the one that made the instance, as after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any

import pytest

from aenv.base.addresses import Origin
from aenv.base.config import Project
from aenv.base.errors import NetworkError, NotFound
from aenv.base.http1 import Pool
from aenv.engines.base import Address, Describes, Engine, Exec, Files, InstanceSpec, Logs, Ports

from .able import ABLE, result, whole
from .commands import ExecConformance
from .engine import Projects, call
from .files import FilesConformance, pieces

BAD_IDS = ("unknown-aaaaaaaaaaaaaaaaaaaaaaaaaa", "..", "../..", ".", "", "a/b", "/", "a\0", "A")


class CapabilityConformance(ExecConformance, FilesConformance):
    """The suite. To be combined with `EngineConformance`, which gives the fixtures."""

    # Ids that mean no instance

    @pytest.mark.parametrize("id", BAD_IDS)
    async def test_an_instance_that_does_not_run_can_do_nothing(self, another: Engine, id: str) -> None:
        asked: list[Any] = []
        if isinstance(another, Logs):
            asked += [lambda: whole(another.logs(id)), lambda: whole(another.logs(id, follow=True))]
        if isinstance(another, Exec):
            asked.append(lambda: result(another.exec(id, ["true"])))
        if isinstance(another, Files):
            asked += [lambda: another.put(id, "a", pieces(b"")), lambda: whole(another.read(id, "a"))]
            asked += [lambda: another.list(id), lambda: another.remove(id, "a")]
        if isinstance(another, Ports):
            asked.append(lambda: another.port(id, 80))
        for ask in asked:
            with pytest.raises(NotFound, match="not found"):
                await ask()
        await another.destroy(id)

    async def test_an_engine_that_describes_itself_has_words_for_each_part(
        self, another: Engine, spec: InstanceSpec
    ) -> None:
        if isinstance(another, Describes):
            assert another.summary
            assert another.describe_rootfs(Project(spec.project, "conformance", "1.0.0"))

    # Logs

    async def test_the_log_has_what_the_instance_has_printed(
        self, logs: Logs, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        printed = (b"the environment was loaded\n", b"from a tool\n")
        await call(pool, instance, "say", text="from a tool")
        async with contextlib.aclosing(logs.logs(spec.id, follow=True)) as following:  # type: ignore[type-var]
            seen = b""
            while not all(text in seen for text in printed):  # a cluster writes it down a moment later
                seen += await anext(following)
        log = await whole(logs.logs(spec.id))
        assert all(text in log for text in printed)

    async def test_a_log_can_be_followed_until_the_instance_has_said_its_last_words(
        self, logs: Logs, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        log = logs.logs(spec.id, follow=True)
        seen = b""
        for text in ("one", "two", "three"):
            await call(pool, instance, "say", text=text)
            while f"{text}\n".encode() not in seen:
                seen += await anext(log)
        ending = asyncio.create_task(whole(log))
        with pytest.raises(NetworkError):
            await call(pool, instance, "last_words", text="farewell " * 10_000)
        assert (await ending).endswith(b"farewell " * 10_000)

    async def test_a_log_that_nobody_follows_any_more_costs_nothing(
        self, logs: Logs, spec: InstanceSpec, instance: Address
    ) -> None:
        before = sorted(os.listdir("/proc/self/fd"))
        log = logs.logs(spec.id, follow=True)
        await anext(log)
        await log.aclose()  # type: ignore[attr-defined]
        waiting = asyncio.create_task(whole(logs.logs(spec.id, follow=True)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert sorted(os.listdir("/proc/self/fd")) == before

    # Ports

    async def test_a_port_on_which_the_instance_listens_can_be_reached(
        self, ports: Ports, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        for host in ("127.0.0.1", "0.0.0.0", *(("::1", "::") if socket.has_dualstack_ipv6() else ())):
            number = await call(pool, instance, "listen", host=host, name=host)
            for said in (b"", b"hello " * 100_000):
                assert await said_to(await ports.port(spec.id, number), said) == host.encode() + b": " + said

    async def test_a_port_of_what_the_instance_started_can_be_reached(
        self, ports: Ports, spec: InstanceSpec, instance: Address, pool: Pool
    ) -> None:
        number = await call(pool, instance, "listen_in_another_process", name="child")
        assert await said_to(await ports.port(spec.id, number), b"hello") == b"child: hello"

    async def test_a_port_is_that_of_the_instance_that_was_asked_for(
        self,
        engine: Engine,
        ports: Ports,
        spec: InstanceSpec,
        instance: Address,
        pool: Pool,
        projects: Projects,
    ) -> None:
        other = projects.spec(ABLE)
        address = await engine.create(other)
        numbers = {
            spec.id: await call(pool, instance, "listen", host="127.0.0.1", name="one"),
            other.id: await call(pool, address, "listen", host="127.0.0.1", name="other"),
        }
        assert await said_to(await ports.port(spec.id, numbers[spec.id]), b"?") == b"one: ?"
        assert await said_to(await ports.port(other.id, numbers[other.id]), b"?") == b"other: ?"
        if numbers[spec.id] != numbers[other.id]:
            with pytest.raises(NotFound):
                await ports.port(spec.id, numbers[other.id])

    async def test_a_port_of_somebody_else_is_not_found(
        self, ports: Ports, spec: InstanceSpec, instance: Address
    ) -> None:
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
            number = server.sockets[0].getsockname()[1]
            with pytest.raises(NotFound, match="nothing in instance"):
                await ports.port(spec.id, number)
        for free in (number, 0, -1, 65536):
            with pytest.raises(NotFound):
                await ports.port(spec.id, free)


async def said_to(origin: Origin, text: bytes) -> bytes:
    """What a server answers to this, once it was told that there is no more of it."""
    if origin.socket:
        reader, writer = await asyncio.open_unix_connection(origin.socket)
    else:
        reader, writer = await asyncio.open_connection(origin.host, origin.port)
    writer.write(text)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer
