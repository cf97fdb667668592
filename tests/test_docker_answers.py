"""What an engine of containers may answer; from a server of our own: no engine does so on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from aenv.base.errors import StartFailed
from aenv.engines.base import InstanceSpec, ResourceLimits
from aenv.engines.docker.docker_engine import DockerEngine

REFUSED = (500, {"message": "sending SIGKILL to container: container state improper: stopped"})

Answer = tuple[int, object]


@contextlib.asynccontextmanager
async def answering(place: Path, answer: Callable[[str, str], Answer]) -> AsyncIterator[DockerEngine]:
    """An engine whose requests are answered by method and target."""

    connections: list[asyncio.Future[None]] = []

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connections.append(ended)
        while head := await reader.readline():
            length = 0
            while line := (await reader.readline()).strip().lower():
                length = int(line.partition(b":")[2]) if line.startswith(b"content-length") else length
            await reader.readexactly(length)
            method, target, _ = head.decode().split(" ", 2)
            status, said = answer(method, target)
            body = b"" if said is None else json.dumps(said).encode()
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()
        ended.set_result(None)

    async with await asyncio.start_unix_server(served, place / "s"):
        engine = DockerEngine(place / "home", f"unix://{place}/s")
        try:
            yield engine
        finally:
            await engine.close()
            await asyncio.gather(*connections)


async def test_a_container_that_ends_while_it_is_removed_is_removed_when_it_has_ended(tmp_path: Path) -> None:
    asked: list[str] = []
    answers: dict[str, list[Answer]] = {"DELETE": [REFUSED, (204, None)], "POST": [(200, {"StatusCode": 137})]}

    def answer(method: str, target: str) -> Answer:
        if ".sidecar" in target:
            return 404, {"message": "none"}
        asked.append(method)
        return answers[method].pop(0)

    async with answering(tmp_path, answer) as engine:
        await engine.destroy("x-1")
    assert asked == ["DELETE", "POST", "DELETE"]


async def test_an_engine_that_leaves_out_gpus_without_a_word_fails_the_start(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(method: str, target: str) -> Answer:
        asked.append(f"{method} {target.partition('?')[0]}")
        return 200, {"HostConfig": {"DeviceRequests": None}}

    async with answering(tmp_path, answer) as engine:
        spec = InstanceSpec("x-1", "x@1.0", tmp_path, image="own:1", limits=ResourceLimits(gpus=1))
        with pytest.raises(StartFailed, match=r"cannot be started: the engine of containers at .* gives no GPUs"):
            await engine.create(spec)
    assert not [*(tmp_path / "home" / "run" / "instances").iterdir()]
    assert "POST /containers/aenv-x-1/start" not in asked
    assert "DELETE /containers/aenv-x-1" in asked
