"""Descriptors that a gateway was started with, of high numbers too: none is open in what it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aenv.engines.commands import Command, Commands
from aenv.isolation.rootfs.host_rootfs import host_root
from aenv.isolation.sandbox.build_run import run
from tests.relayed import answer, relayed, relays

HIGH = 1500


@pytest.fixture
def inherited(tmp_path: Path) -> Iterator[int]:
    """A file that is open, and that new programs get unless it is closed for them."""
    (tmp_path / "secret").write_text("secret")
    file = os.open(tmp_path / "secret", os.O_RDONLY)
    for number in (HIGH, HIGH * 3):
        os.dup2(file, number, inheritable=True)
    os.close(file)
    yield HIGH
    for number in (HIGH, HIGH * 3):
        os.close(number)


def test_a_program_that_is_started_carelessly_has_them(inherited: int) -> None:
    assert os.spawnlp(os.P_WAIT, "sh", "sh", "-c", f"test -e /proc/self/fd/{inherited}") == 0


async def test_a_command_has_three_descriptors(inherited: int) -> None:
    command = Command(["ls", "/proc/self/fd"], Path("/"), {"PATH": os.defpath}, b"", None)
    outputs = [output async for output in Commands().run("x", command, lambda: None)]
    assert outputs[0].data.split() == [b"0", b"1", b"2", b"3"]  # the last is that of the folder itself


async def test_the_command_of_a_dockerfile_has_three_descriptors(inherited: int, tmp_path: Path) -> None:
    lines: list[str] = []
    told: dict[str, Any] = {
        "variables": {"PATH": os.defpath},
        "folder": "/",
        "network": False,
        "on_line": lines.append,
    }
    (tmp_path / "upper").mkdir()
    status = await run(host_root(tmp_path), ["ls", "/proc/self/fd"], upper=tmp_path / "upper", **told)
    assert (status, " ".join(lines).split()) == (0, ["0", "1", "2", "3"])


async def test_an_instances_commands_and_its_relays_have_none_of_them(inherited: int, tmp_path: Path) -> None:
    async with relayed(tmp_path) as make:
        instance = await make()
        outputs = [output async for output in instance.engine.exec(instance.folder.id, ["ls", "/proc/self/fd"])]
        assert outputs[0].data.split() == [b"0", b"1", b"2", b"3"]
        port = await instance.port(await instance.result("serve(echo)"))
        assert await answer(port, b"x") == b"x[end]"
        (relay,) = relays()
        assert not {inherited, inherited * 3} & {int(name) for name in os.listdir(f"/proc/{relay}/fd")}
