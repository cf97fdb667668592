"""The programs of ours in containers, as child processes: what they are ordered, and what they answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import pytest

from aenv.base.command_order import CommandOrder
from aenv.base.errors import NotFound
from aenv.engines.containers.container_commands import PROGRAM, ContainerCommands
from aenv.engines.containers.container_files import ContainerFiles

# The workspace is a folder of the test, in place of the one in a container.
FILES = "import sys; from aenv.engines.containers import workspace_program as p; p.FILES = sys.argv[1]; p.main()"


class Child:
    """A program of a container, started here."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    async def write(self, data: bytes) -> None:
        self._stdin.write(data)
        await self._stdin.drain()

    async def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        while piece := await self._stdout.read(1 << 16):
            yield 1, piece

    async def leave(self) -> None:
        self.close()
        await self._process.wait()

    def close(self) -> None:
        self._stdin.close()


async def started(*words: str) -> Child:
    pipe = asyncio.subprocess.PIPE
    return Child(await asyncio.create_subprocess_exec(sys.executable, *words, stdin=pipe, stdout=pipe))


async def start(words: Sequence[str]) -> Child:
    return await started(*words[1:])


@pytest.fixture
def files(tmp_path: Path) -> ContainerFiles:
    (tmp_path / "workspace").mkdir()
    return ContainerFiles("one", lambda words: started("-c", FILES, str(tmp_path)))


async def test_a_command_gets_its_words_its_input_and_its_variables(tmp_path: Path) -> None:
    told = tmp_path / "variables.json"
    told.write_text('{"GREETING": "good day"}')
    words = ["sh", "-c", 'echo "$GREETING, $1"; cat; exit 3', "sh", "it's me"]
    outputs = ContainerCommands().run("one", start, words, b"and more", None, variables_file=str(told))
    said = [output async for output in outputs]
    assert b"".join(output.data for output in said) == b"good day, it's me\nand more"
    assert [output.exit_code for output in said if output.stream == "exit"] == [3]


async def test_a_command_that_takes_too_long_ends_with_124() -> None:
    outputs = ContainerCommands().run("one", start, ["sleep", "60"], b"", 0.1)
    assert [output.exit_code async for output in outputs] == [124]


async def test_the_order_of_an_older_gateway_without_a_file_of_variables_is_understood() -> None:
    child = await start(PROGRAM)
    await child.write(b'{"command": ["echo", "hello"], "timeout": null, "stdin_bytes": 0}\n')
    said = b"".join([piece async for _, piece in child.outputs()])
    await child.leave()
    assert said == b"\x01\x00\x00\x00\x06hello\n" + b"\x00\x00\x00\x00\x010"


def test_an_order_is_one_line_and_is_read_as_it_was_written() -> None:
    order = CommandOrder(("echo", "two\nlines", "größer"), 1.5, 3, "/run/variables.json")
    assert order.line().count(b"\n") == 1
    assert CommandOrder.parse(order.line()) == order


async def test_files_are_put_read_listed_and_removed_by_a_program(files: ContainerFiles) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"some "
        yield b"text"

    for name in ("a.txt", "b.txt", "c.txt"):
        assert await files.put(f"folder/{name}", content()) == 9
    assert b"".join([piece async for piece in files.read("folder/a.txt")]) == b"some text"
    listed = await files.entries("folder", after="a.txt", limit=1)
    assert [(entry.path, entry.size_bytes) for entry in listed] == [("folder/b.txt", 9)]
    await files.remove("folder/b.txt")
    with pytest.raises(NotFound):
        await files.remove("folder/b.txt")
