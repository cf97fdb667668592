"""What instances use: the route, `aenv ps`, `aenv top`, `aenv warm` and `aenv doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import json
import os
import re
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from aenv.base.models import CreateInstance, Usage
from aenv.cli import usage
from aenv.cli.main import cli
from aenv.cli.usage_screen import UsageScreen
from aenv.control.gateway.parts import Parts
from aenv.control.serving.accounts import LOCAL, Role
from aenv.engines.base import ResourceUsage
from aenv.isolation.sandbox import probe
from aenv.isolation.sandbox.probe import Check
from tests.command_line import AENV, environ
from tests.gateways import Gateway, composed, listening, make_project, running_gateway
from tests.test_warm_pools import WarmEngine


class MeasuringEngine(WarmEngine):
    """Tells what it was told to tell."""

    uses: Mapping[str, ResourceUsage] = {}

    async def used(self, ids: Sequence[str]) -> Mapping[str, ResourceUsage]:
        return {id: self.uses[id] for id in ids if id in self.uses}


class Served:
    def __init__(self, made: Parts, gateway: Gateway, engine: MeasuringEngine) -> None:
        self.made = made
        self.gateway = gateway
        self.engine = engine

    async def create(self, **asked: Any) -> str:
        return (await self.made.creator.create(CreateInstance(env_name="echo", **asked), LOCAL)).id

    async def usage(self, query: str = "", token: str = "") -> Any:
        headers = [("authorization", f"Bearer {token}")] if token else []
        status, reply = await self.gateway.ask("GET", f"/env-instances/usage{query}", None, headers)
        assert status == 200, reply
        return reply["data"]

    async def aenv(self, *arguments: str) -> Result:
        """The command line, for this gateway."""
        command = [*arguments, "--system-url", self.gateway.address.url]
        return await asyncio.to_thread(CliRunner().invoke, cli, command)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    home = tmp_path / "home"
    home.mkdir()
    engine = MeasuringEngine(home)
    async with composed(home, make_project(tmp_path), engine=engine) as made, listening(made) as gateway:
        yield Served(made, gateway, engine)


async def test_a_row_says_what_an_instance_uses(served: Served) -> None:
    id = await served.create(owner="ada")
    served.engine.uses = {id: ResourceUsage(1.5, 5 << 20, 2)}
    data = await served.usage()
    (row,) = data["instances"]
    assert row | {"created_at": "", "expires_at": ""} == {
        "id": id,
        "env": "echo@1.0.0",
        "owner": "ada",
        "status": "Running",
        "service": None,
        "frozen": False,
        "cpu_seconds": 1.5,
        "memory_bytes": 5 << 20,
        "processes": 2,
        "calls": 0,
        "created_at": "",
        "expires_at": "",
    }
    assert row["created_at"] <= data["at"] < row["expires_at"]


async def test_the_filters_are_those_of_the_list(served: Served) -> None:
    one, two = await served.create(owner="ada", labels={"a": "b"}), await served.create(owner="bob")
    for query, ids in (
        ("?owner=ada", [one]),
        ("?label=a=b", [one]),
        ("?envName=echo@1.0.0", [one, two]),
        ("?envName=other", []),
        ("?limit=1", [one]),
        (f"?cursor={one}", [two]),
        ("?status=Terminated", []),
    ):
        assert [row["id"] for row in (await served.usage(query))["instances"]] == ids, query


async def test_everybody_sees_their_own_and_administrators_what_is_warm(served: Served) -> None:
    await served.create(owner="ada")
    served.engine.kept = {("echo@1.0.0", ""): 3}
    accounts = served.made.shared.accounts
    (_, admin), (_, bob) = await accounts.create("root", Role.ADMIN), await accounts.create("bob")
    seen = await served.usage(token=admin)
    assert (len(seen["instances"]), seen["warm"]) == (1, {"echo@1.0.0": 3})
    seen = await served.usage(token=bob)
    assert (seen["instances"], seen["warm"]) == ([], {})


async def test_an_engine_that_measures_nothing_gives_no_numbers(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        await made.creator.create(CreateInstance(env_name="echo"), LOCAL)
        status, reply = await gateway.ask("GET", "/env-instances/usage")
        (row,) = reply["data"]["instances"]
        assert (status, row["cpu_seconds"], row["memory_bytes"], row["processes"]) == (200, None, None, None)


# The command line


def reply(at: float, **cpu: float | None) -> Usage:
    def moment(seconds: float) -> str:
        return f"2026-01-01T00:{int(seconds // 60):02}:{seconds % 60:06.3f}Z"

    rows = [
        {
            "id": id,
            "env": "echo@1.0.0",
            "owner": None,
            "status": "Running",
            "frozen": id == "b",
            "cpu_seconds": used,
            "memory_bytes": None if used is None else 1000 * int(used),
            "processes": 1,
            "calls": None if used is None else 2,
            "created_at": moment(0),
            "expires_at": moment(1800),
        }
        for id, used in cpu.items()
    ]
    warm = {"echo@1.0.0": 3, "other@1.0.0": 1}
    return Usage.model_validate({"at": moment(at), "instances": rows, "warm": warm})


def test_cpu_is_over_the_life_or_since_the_last_look() -> None:
    first, second = reply(100, a=10, b=50, c=None), reply(102, a=11, b=50, c=None, d=51)
    assert [row.cpu_percent for row in usage.rows(first)] == [10.0, 50.0, None]
    assert [row.cpu_percent for row in usage.rows(second, first)] == [50.0, 0.0, None, 50.0]
    assert (usage.rows(first)[0].age, usage.rows(first)[0].left) == (100, 1700)


def test_the_table_has_a_line_for_each_and_one_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    said = reply(100, a=10, b=None)
    usage.show(said, usage.rows(said))
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "ID  Environment  Owner  Status   CPU     Memory   Calls  Age    TTL left",
        "a   echo@1.0.0   -      Running  10.0 %  10.0 kB  2      1m40s  28m20s",
        "b   echo@1.0.0   -      Frozen   -       -        -      1m40s  28m20s",
    ]
    assert err == "2 running, 1 of them frozen; 4 spare\n"


async def test_ps_lists_what_the_gateway_says(served: Served) -> None:
    id = await served.create(owner="ada")
    served.engine.uses = {id: ResourceUsage(0.0, 5_000_000, 2)}
    done = await served.aenv("ps", "--owner", "ada")
    assert done.exit_code == 0, done.output
    header, row = done.stdout.splitlines()
    assert (header.split()[0], row.split()[:2], "5.0 MB" in row) == ("ID", [id, "echo@1.0.0"], True)
    assert json.loads((await served.aenv("ps", "--json")).stdout)["instances"][0]["id"] == id
    assert len((await served.aenv("ps", "--owner", "bob")).stdout.splitlines()) == 1


async def test_top_looks_again_and_sorts(served: Served) -> None:
    one, two = await served.create(), await served.create()
    served.engine.uses = {one: ResourceUsage(0.0, 9, 1), two: ResourceUsage(5.0, 3, 1)}
    looks = ("top", "-n", "2", "--delay", "1ms", "--json")
    lines = [json.loads(line) for line in (await served.aenv(*looks)).stdout.splitlines()]
    assert [row["id"] for row in lines[0]["instances"]] == [two, one]
    assert lines[0]["instances"][0]["cpu_percent"] > 0
    assert [row["cpu_percent"] for row in lines[1]["instances"]] == [0.0, 0.0]
    for order, first in (("memory", one), ("age", one), ("cpu", two)):
        done = await served.aenv("top", "--sort", order)  # once, since it is no terminal
        assert done.stdout.splitlines()[1].split()[0] == first
        assert len(done.stdout.splitlines()) == 3
        assert "\x1b" not in done.stdout


def test_names_are_sorted_from_a_and_numbers_from_the_largest() -> None:
    found = usage.rows(reply(100, a=10, b=50, c=None))
    for order, ids in (("cpu", "bac"), ("memory", "bac"), ("calls", "abc"), ("state", "abc"), ("env", "abc")):
        assert "".join(row.data.id for row in usage.ordered(found, order)) == ids, order
    assert [row.data.id for row in usage.ordered(found, "cpu", is_reversed=True)] == ["c", "a", "b"]


class Terminal:
    """`aenv top` on a terminal of its own, whose keys are pressed and whose output is read."""

    def __init__(self, url: str, rows: int) -> None:
        self._ours, theirs = os.openpty()
        self.resize(rows)
        self.modes = termios.tcgetattr(self._ours)
        variables = {**environ(), "TERM": "xterm", "COLORTERM": ""}
        self.process = subprocess.Popen(
            [AENV, "top", "--delay", "50ms", "--system-url", url],
            env={name: value for name, value in variables.items() if name not in ("COLUMNS", "LINES")},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.said = ""

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 120, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def until(self, pattern: str) -> str:
        """What it prints from now on, up to a match."""
        begun = len(self.said)
        while not re.search(pattern, self.said[begun:]):
            self.said += (await asyncio.to_thread(os.read, self._ours, 1 << 16)).decode()
        return self.said[begun:]

    async def end(self) -> int:
        """The exit code, once it has ended; the rest of what it prints is read."""
        with contextlib.suppress(OSError):  # how the end of a terminal reads
            await self.until("never said")
        return await asyncio.to_thread(self.process.wait)

    @property
    def is_restored(self) -> bool:
        """Whether screen, cursor and keyboard are as they were."""
        after = self.said.rpartition("\x1b[?1049h")[2]
        return "\x1b[?1049l" in after and after.rfind("\x1b[?25h") > after.rfind("\x1b[?25l")


@contextlib.contextmanager
def on_a_terminal(url: str, rows: int = 24) -> Iterator[Terminal]:
    terminal = Terminal(url, rows)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()


@pytest.mark.slow
async def test_top_on_a_terminal_obeys_keys_and_follows_its_size(served: Served) -> None:
    ids = [await served.create() for _ in range(6)]
    served.engine.uses = {id: ResourceUsage(0.0, 1000 * number, 1) for number, id in enumerate(ids)}
    with on_a_terminal(served.gateway.address.url) as terminal:
        shown = await terminal.until("q quit")
        assert "CPU ▼" in shown
        assert [id for id in ids if id not in shown] == []
        terminal.press("m")
        shown = await terminal.until("Memory ▼(.|\n)*q quit")
        last = shown.rpartition("Memory ▼")[2]
        assert [last.index(id) for id in ids] == sorted((last.index(id) for id in ids), reverse=True)
        terminal.press("r")
        await terminal.until("Memory ▲(.|\n)*q quit")
        terminal.resize(7)
        shown = await terminal.until("2 more below(.|\n)*q quit")
        last = shown.rpartition("2 more below")[2]
        assert [id in last for id in ids] == [True] * 4 + [False] * 2
        terminal.press("q")
        assert await terminal.end() == 0
        assert terminal.is_restored


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("q", 0), ("ctrl-c", 0), ("SIGTERM", 143)])
async def test_top_leaves_the_terminal_as_it_was(served: Served, how: str, code: int) -> None:
    with on_a_terminal(served.gateway.address.url) as terminal:
        await terminal.until("q quit")
        keyboard = termios.tcgetattr(terminal._ours)
        assert keyboard[3] & (termios.ECHO | termios.ICANON) == 0
        if how == "SIGTERM":
            terminal.process.terminate()
        else:
            terminal.press({"q": "q", "ctrl-c": "\x03"}[how])
        await terminal.until(r"\?1049l")
        while termios.tcgetattr(terminal._ours) != terminal.modes and terminal.process.poll() is None:
            await asyncio.sleep(0)
        assert termios.tcgetattr(terminal._ours) == terminal.modes
        assert await terminal.end() == code
        assert terminal.is_restored


@pytest.mark.slow
async def test_top_goes_on_when_its_gateway_does_not_answer(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with contextlib.AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(running_gateway(home))
        with on_a_terminal(gateway.address.url) as terminal:
            await terminal.until("0 running")
            await stack.aclose()
            await terminal.until("trying again")
            terminal.press("q")
            assert await terminal.end() == 0


async def test_warm_says_what_is_kept(served: Served) -> None:
    done = await served.aenv("warm", "echo", "--count", "2")
    assert (done.exit_code, done.stdout) == (0, "echo@1.0.0: 2 kept, 2 ready\n")
    assert json.loads((await served.aenv("warm", "echo@1.0.0", "--count", "0", "--json")).stdout)["kept"] == 0


CHECKS = [
    Check("user namespaces", True, "work"),
    Check("cgroup cpu", False, "not enforced", "delegate it"),
    Check("runsc", None, "not there", "install it"),
]


def test_doctor_says_what_is_missing_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AENV_HOME", str(tmp_path))
    monkeypatch.setattr(probe, "checks", lambda: CHECKS)
    monkeypatch.setattr(probe, "missing_isolation", lambda: None)
    done = CliRunner().invoke(cli, ["doctor"], standalone_mode=False)
    assert done.return_value == 0
    *checks, disk = [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()]
    assert checks == [
        ["Check", "State", "Found", "What to do"],
        ["user namespaces", "ok", "work"],
        ["cgroup cpu", "MISSING", "not enforced", "delegate it"],
        ["runsc", "-", "not there", "install it"],
    ]
    assert disk[0] == "disk" and disk[2].startswith(f"{tmp_path} takes 0 bytes; ")
    said = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    assert (said["isolation"], said["checks"][1]["fix"]) == (True, "delegate it")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_doctor_fails_where_instances_cannot_be_isolated(
    monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr(probe, "checks", lambda: CHECKS)
    monkeypatch.setattr(probe, "missing_isolation", lambda: "no user namespaces; allow them")
    done = CliRunner().invoke(cli, ["doctor", *options], standalone_mode=False)
    assert done.return_value == 1
    assert "no user namespaces; allow them" in done.output


@pytest.mark.parametrize("width", [80, 110])
def test_on_a_narrow_screen_names_give_way_and_numbers_are_whole(width: int) -> None:
    row = {"id": f"mini-terminal-{'a' * 26}", "env": "mini-terminal@1.0.1", "owner": "ann", "status": "Running"}
    row |= {"cpu_seconds": 3.0, "memory_bytes": 123456789, "processes": 3, "calls": 12, "frozen": False}
    row |= {"created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z"}
    screen = UsageScreen("cpu")
    screen.tell(Usage.model_validate({"at": "2026-01-01T00:20:00Z", "instances": [row], "warm": {}}), None)
    console = Console(width=width, height=10, file=io.StringIO(), record=True)
    console.print(screen)
    _, headers, line, *_ = console.export_text().splitlines()
    assert line.startswith("mini-t…aaaaaa ")  # what instances of one environment differ in is there
    assert line.split()[-7:] == ["0.2", "%", "123.5", "MB", "12", "20m", "40m"]
    assert "Running" in line and "TTL left" in headers and "Memory" in headers
