"""What an engine of containers may answer to a removal; from a server of our own: no engine does so on demand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aenv.engines.docker.docker_engine import DockerEngine

REFUSED = (500, {"message": "sending SIGKILL to container: container state improper: stopped"})


async def test_a_container_that_ends_while_it_is_removed_is_removed_when_it_has_ended(tmp_path: Path) -> None:
    asked: list[str] = []
    answers = {"DELETE": [REFUSED, (204, None)], "POST": [(200, {"StatusCode": 137})]}

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            while (await reader.readline()).strip():
                pass
            method, target, _ = head.decode().split(" ", 2)
            part = ".sidecar" if ".sidecar" in target else "main"
            asked.append(f"{method} {part}")
            status, said = (404, {"message": "none"}) if part == ".sidecar" else answers[method].pop(0)
            body = b"" if said is None else json.dumps(said).encode()
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_unix_server(served, tmp_path / "s"):
        engine = DockerEngine(tmp_path / "home", f"unix://{tmp_path}/s")
        await engine.destroy("x-1")
        await engine.close()
    assert [each for each in asked if "main" in each] == ["DELETE main", "POST main", "DELETE main"]
