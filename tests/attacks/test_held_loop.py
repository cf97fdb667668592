"""Work for one tenant that must not keep the gateway from answering another: long listings, many commands."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from aenv import Environment
from aenv.engines.base import MAX_ENTRIES, CommandOutput
from aenv.engines.commands import MOST, Command, Commands
from tests.attacks.served import Served, served
from tests.ordinary import OrdinaryUser

FILES = 25_000


@pytest.fixture(scope="module", params=["root", "user"])
def gateway(request: pytest.FixtureRequest, user: OrdinaryUser) -> Iterator[Served]:
    with served(user if request.param == "user" else None, accounts=True) as gateway:
        yield gateway


@pytest.fixture
def attacker(gateway: Served) -> Iterator[str]:
    yield from _instance(gateway, "a")


@pytest.fixture
def neighbour(gateway: Served) -> Iterator[str]:
    yield from _instance(gateway, "b")


def _instance(gateway: Served, who: str) -> Iterator[str]:
    id = gateway.create(token=gateway.tokens[who])["id"]
    yield id
    gateway.ask("DELETE", f"/env-instance/{id}", token=gateway.tokens[who])


def assert_answers(gateway: Served, id: str) -> None:
    reply = gateway.call(id, "echo", token=gateway.tokens["b"], text="hello")
    assert (reply.status, b"hello" in reply.body) == (200, True)


def listed(gateway: Served, id: str, query: str) -> Any:
    return gateway.ask("GET", f"/env-instance/{id}/files?{query}", token=gateway.tokens["a"])


def executed(gateway: Served, id: str, command: str) -> Any:
    return gateway.ask("POST", f"/env-instance/{id}/exec", {"command": command}, token=gateway.tokens["a"])


def test_a_listing_is_bounded_and_others_are_answered_while_it_is_made(
    gateway: Served, attacker: str, neighbour: str
) -> None:
    code = (
        f"import os; os.mkdir('many'); [os.close(os.open(f'many/{{n:06}}', os.O_CREAT)) for n in range({FILES})]"
    )
    assert b'"code":0' in executed(gateway, attacker, f'python3 -c "{code}"').body
    with ThreadPoolExecutor(4) as threads:
        listings = [threads.submit(listed, gateway, attacker, "path=many") for _ in range(4)]
        assert_answers(gateway, neighbour)
        for listing in listings:
            assert len(listing.result().data) == MAX_ENTRIES
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = listed(gateway, attacker, f"path=many&cursor={quote(cursor)}").json
        found += [entry["path"] for entry in page["data"]]
        cursor = page.get("next")
    assert found == [f"many/{number:06}" for number in range(FILES)]
    small = listed(gateway, attacker, "path=many&limit=2").json
    assert ([entry["path"] for entry in small["data"]], small["next"]) == (
        ["many/000000", "many/000001"],
        "000001",
    )
    for limit in ("0", "10001", "x", "-1"):
        refused = listed(gateway, attacker, f"path=many&limit={limit}")
        assert (refused.status, "'limit'" in refused.json["message"]) == (400, True)


def test_a_client_is_given_every_entry_of_a_long_folder(gateway: Served, attacker: str) -> None:
    code = f"import os; os.mkdir('many'); [os.mkdir(f'many/{{n}}') for n in range({MAX_ENTRIES + 2})]"
    assert b'"code":0' in executed(gateway, attacker, f'python3 -c "{code}"').body

    async def names() -> list[str]:
        options: dict[str, Any] = {"aenv_url": gateway.url, "api_key": gateway.tokens["a"], "attach": attacker}
        async with Environment("echo@1.0.0", **options) as environment:
            return [entry["path"] for entry in await environment.list_files("many")]

    assert len(set(asyncio.run(names()))) == MAX_ENTRIES + 2


def test_a_date_that_is_none_spoils_no_listing(gateway: Served, attacker: str) -> None:
    code = "import os; open('old', 'w'); os.utime('old', (-(1 << 40), -(1 << 40))); open('new', 'w'); "
    code += "os.utime('new', (1 << 45, 1 << 45))"
    assert b'"code":0' in executed(gateway, attacker, f'python3 -c "{code}"').body
    assert {entry["path"] for entry in listed(gateway, attacker, "").data} >= {"old", "new"}


def test_commands_of_an_instance_are_bounded_and_others_are_answered_while_they_run(
    gateway: Served, attacker: str, neighbour: str
) -> None:
    assert executed(gateway, attacker, "mkfifo gate").status == 200
    body = json.dumps({"command": "echo up; read line < gate"}).encode()
    with contextlib.ExitStack() as stack:
        running: list[http.client.HTTPResponse] = []
        refused: list[dict[str, Any]] = []
        taken = threading.Lock()

        def begin() -> None:
            address = urlsplit(gateway.url)
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
            with taken:
                stack.callback(connection.close)
            headers = {"authorization": f"Bearer {gateway.tokens['a']}", "content-type": "application/json"}
            connection.request("POST", f"/env-instance/{attacker}/exec", body, headers)
            response = connection.getresponse()
            with taken:
                if response.status == 200:
                    running.append(response)
                else:
                    refused.append({"status": response.status, **json.loads(response.read())})

        with ThreadPoolExecutor(40) as threads:
            begun = [threads.submit(begin) for _ in range(40)]
            assert_answers(gateway, neighbour)
            for each in begun:
                each.result()
        assert len(running) == MOST
        assert {each["status"] for each in refused} == {429}
        assert f"{MOST} commands" in refused[0]["message"]
        assert_answers(gateway, neighbour)
        neighbours = gateway.ask(
            "POST", f"/env-instance/{neighbour}/exec", {"command": "echo here"}, token=gateway.tokens["b"]
        )
        assert b"here" in neighbours.body
    assert gateway.call(attacker, "echo", token=gateway.tokens["a"], text="x").status == 200


def test_a_command_of_very_many_words_is_refused_and_a_long_input_is_not(gateway: Served, attacker: str) -> None:
    at = f"/env-instance/{attacker}/exec"
    for many in (b'"",' * 2_000_000 + b'""', b'"\\\\",' * 1_000_000 + b'""', b"[1]," * 1_500_000 + b'""'):
        refused = gateway.ask("POST", at, b'{"command": [' + many + b"]}", token=gateway.tokens["a"])
        assert (refused.status, "'command'" in refused.json["message"]) == (400, True)
    text = 'a "quoted", text\n' * 300_000
    done = gateway.ask("POST", at, {"command": "wc -c", "stdin": text}, token=gateway.tokens["a"])
    assert str(len(text)).encode() in done.body


def test_what_a_command_is_told_stands_in_no_process_list_but_as_its_own(gateway: Served, attacker: str) -> None:
    """The program that enters the instance carries neither the command nor the id of the instance."""
    secret = f"secret-{os.urandom(8).hex()}"
    assert executed(gateway, attacker, "mkfifo gate").status == 200
    address = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    with contextlib.closing(connection):
        headers = {"authorization": f"Bearer {gateway.tokens['a']}", "content-type": "application/json"}
        body = {"command": ["sh", "-c", "echo up; read line < gate", secret]}
        connection.request("POST", f"/env-instance/{attacker}/exec", json.dumps(body), headers)
        response = connection.getresponse()
        assert response.readline() == b"event: stdout\n"
        shown = _command_lines()
        assert [line for line in shown if b"aenv.isolation.sandbox.enter" in line], "nothing entered the instance"
        assert not [line for line in shown if b"aenv" in line and secret.encode() in line]
        assert not [line for line in shown if attacker.encode() in line]


def _command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


# Holds whoever executes the file until told to go on; gives up after a while, so that a held-up test ends.
HOLD = """
import ctypes, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
group = libc.fanotify_init(0x4 | 0x1, os.O_RDONLY)  # FAN_CLASS_CONTENT, FAN_CLOEXEC
FAN_OPEN_EXEC_PERM = 0x40000
if group < 0 or libc.fanotify_mark(group, 1, ctypes.c_uint64(FAN_OPEN_EXEC_PERM), -100, sys.argv[1].encode()):
    print("unsupported", flush=True)
    sys.exit()
print("ready", flush=True)
event = os.read(group, 4096)
descriptor = struct.unpack_from("=IBBHQii", event)[5]
print("held", flush=True)
told, _, _ = select.select([sys.stdin], [], [], 10)
os.write(group, struct.pack("=iI", descriptor, 1))  # FAN_ALLOW
print("released" if told else "gave up", flush=True)
"""


async def test_the_loop_goes_on_while_a_program_is_being_started(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/echo", program)
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLD, str(program)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin
    assert holder.stdout
    try:
        if await holder.stdout.readline() != b"ready\n":
            pytest.skip("this kernel cannot hold up the start of a program")

        async def run() -> list[CommandOutput]:
            command = Command([str(program), "started"], Path("/"), {}, b"", None)
            return [output async for output in Commands().run("x", command, lambda: None)]

        running = asyncio.create_task(run())
        assert await holder.stdout.readline() == b"held\n"
        holder.stdin.write(b"go on\n")
        assert await holder.stdout.readline() == b"released\n"
        assert [output.data for output in await running] == [b"started\n", b""]
    finally:
        holder.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            holder.kill()
        await holder.wait()
