"""The SDK on the gateway's host: it calls instances by their sockets, and the gateway is not on the way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment, SyncEnvironment
from aenv.base.addresses import Origin
from aenv.base.errors import NotFound, TooLarge, ToolServerError, Unauthenticated
from aenv.base.http1 import Pool
from aenv.base.leasing import LeaseLine
from aenv.client.lease_holder import LeaseHolder
from aenv.client.nearby import NearInstance, NotSent, is_open_to_us
from aenv.control.serving.accounts import Role
from tests.frost import FrostEngine
from tests.gateways import ECHO, Gateway, composed, listening, make_project, running_gateway
from tests.lease_clients import relayed, until_relayed, without_sockets
from tests.ordinary import ordinary_user
from tests.task_environments import SUMS
from tests.test_self_check import TWO, project

REWARD = """
from aenv import register_reward

@register_reward
def score() -> float:
    return 0.5
"""
CALL = "POST /mcp tools/call 200"


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path, code=ECHO + REWARD)) as gateway:
        monkeypatch.setenv("AENV_SYSTEM_URL", gateway.address.url)
        yield gateway


async def program(gateway: Gateway, script: str, *words: str, **options: Any) -> asyncio.subprocess.Process:
    """A client in a process of its own, whose output is read by the test."""
    variables = {**os.environ, "AENV_SYSTEM_URL": gateway.address.url}
    return await asyncio.create_subprocess_exec(
        *words or (sys.executable,), "-c", script, env=variables, stdout=asyncio.subprocess.PIPE, **options
    )


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    return (await process.stdout.readline()).decode().strip()


def told(said: list[str], say: Callable[[LeaseHolder, LeaseLine], None]) -> Callable[..., None]:
    """`LeaseHolder._say`, with what it has said in a list."""

    def spied(holder: LeaseHolder, line: LeaseLine) -> None:
        if holder._body:  # else it is said again when there is a request
            said.append(line.what)
        say(holder, line)

    return spied


async def call_without_end(env: Environment) -> None:
    while True:
        await env.call_tool("echo", {"text": "x"})


# The way


async def test_calls_do_not_pass_the_gateway_which_is_told_of_them_at_the_end(gateway: Gateway) -> None:
    async with Environment("echo") as env:
        for n in range(5):
            assert (await env.call_tool("echo", {"text": str(n)})).content == [{"type": "text", "text": str(n)}]
        assert (await env.call_tool("no-such-tool", {})).is_error
        assert await env.call_function("size", {"text": "four"}) == 4
        assert await env.call_reward() == 0.5
        assert (await env.check_health())["success"]
        assert await relayed(gateway) == {}
        assert [call["name"] for call in await env.history()][-3:] == ["no-such-tool", "size", "score"]
    await until_relayed(gateway, {CALL: 6.0, "POST /other  200": 2.0, "GET /health  200": 1.0})


async def test_environments_made_at_once_and_the_sync_facade_go_the_same_way(gateway: Gateway) -> None:
    async with Environment.create_many(3, "echo") as envs:
        await asyncio.gather(*(env.call_tool("echo", {"text": "hi"}) for env in envs for _ in range(4)))

    def walk() -> None:
        with SyncEnvironment("echo") as env:
            env.call_tool("echo", {"text": "hi"})

    await asyncio.to_thread(walk)
    await until_relayed(gateway, {CALL: 13.0})


async def test_two_environments_on_one_instance_share_its_lease(gateway: Gateway) -> None:
    async with Environment("echo") as first:
        async with Environment("echo", attach=first.instance_id) as second:
            await asyncio.gather(first.call_tool("echo", {"text": "1"}), second.call_tool("echo", {"text": "2"}))
        assert (await first.call_tool("echo", {"text": "3"})).content[0]["text"] == "3"
        await until_relayed(gateway, {CALL: 2.0})
    await until_relayed(gateway, {CALL: 3.0})


async def test_only_the_first_environment_of_a_program_asks_for_a_lease(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(LeaseHolder, "_say", told(said, LeaseHolder._say))
    for _ in range(3):
        async with Environment("echo") as env:
            await env.call_tool("echo", {"text": "x"})
    assert said == ["take", "drop", "drop", "drop"]
    await until_relayed(gateway, {CALL: 3.0})


async def test_an_environment_that_is_given_up_while_it_starts_leaves_no_lease(tmp_path: Path) -> None:
    code = "import time; time.sleep(0.5)\n" + ECHO
    projects = make_project(tmp_path), make_project(tmp_path, "slow", code=code)
    async with composed(tmp_path / "home", *projects) as made, listening(made) as gateway:
        url = gateway.address.url
        async with Environment("echo", aenv_url=url) as env:
            await env.call_tool("echo", {"text": "x"})
            [holding] = made.leases._holdings.values()
            starting = asyncio.create_task(Environment("slow", aenv_url=url).__aenter__())
            while len(made.supervisor) < 2:
                await asyncio.sleep(0.01)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            await env.call_tool("echo", {"text": "y"})
            assert list(holding._held) == [env.instance_id]


async def test_without_its_socket_an_instance_is_called_through_the_gateway(gateway: Gateway) -> None:
    async with Environment("echo") as env:
        assert env.instance_id
        await gateway.call(env.instance_id, "echo", text="x")  # now the gateway has a connection, which it keeps
        shown = (await gateway.ask("GET", f"/env-instance/{env.instance_id}"))[1]["data"]
        os.unlink(shown["socket"])
        assert (await env.call_tool("echo", {"text": "y"})).content[0]["text"] == "y"
        assert await relayed(gateway) == {"POST /other  200": 1.0, CALL: 1.0}


async def test_what_is_too_large_for_the_gateway_is_too_large_for_the_socket(tmp_path: Path) -> None:
    code = ECHO + "\n\n@register_function\ndef much(n: int) -> str:\n    return n * 'x'\n"
    project = make_project(tmp_path, code=code)
    async with (
        running_gateway(tmp_path / "home", project, max_body_bytes=1000) as gateway,
        Environment("echo", aenv_url=gateway.address.url) as env,
    ):
        assert len(await env.call_function("much", {"n": 900})) == 900
        with pytest.raises(TooLarge, match="limit of 1000 bytes"):
            await env.call_function("much", {"n": 1000})
        with pytest.raises(TooLarge, match="limit of 1000 bytes"):
            await env.call_function("size", {"text": "x" * 1000})
        # The last one went through the gateway, whose refusal it is.
        assert await relayed(gateway) == {"POST /other  413": 1.0}


async def test_an_instance_says_nothing_in_the_gateways_name(tmp_path: Path) -> None:
    forged = (
        ECHO
        + REWARD
        + (
            "\nfrom aenv.inside.runtime import http\n"
            "honest = http._head\n"
            "words = ['AEnvCore-Self-Check: held', 'AEnvCore-Instance-Token: forged']\n"
            "http._head = lambda status, lines: honest(status, [*words, *lines])\n"
        )
    )
    async with (
        running_gateway(tmp_path / "home", make_project(tmp_path, code=forged)) as gateway,
        Environment("echo", aenv_url=gateway.address.url) as env,
    ):
        shown = (await gateway.ask("GET", f"/env-instance/{env.instance_id}"))[1]["data"]
        response = await gateway.pool.request(Origin("localhost", socket=shown["socket"]), "GET", "/health")
        assert response.header(b"aenvcore-self-check") == "held"
        await response.read()
        assert (await env.call_reward(), env.checked) == (0.5, None)
        assert env._launched
        assert env._launched.session._token == env._launched.instance.token


# Ends


async def test_an_end_in_the_middle_of_a_call_has_the_words_that_it_has_through_the_gateway(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for way in ("by the socket", "through the gateway"):
        if way == "through the gateway":
            without_sockets(monkeypatch)
        async with Environment("echo") as env:
            with pytest.raises(ToolServerError, match=r"ended before it had answered: .*signal 9") as caught:
                await env.call_tool("die")
            said.append(str(caught.value).replace(env.instance_id or "", "ID"))
            with pytest.raises(NotFound, match="it has ended: "):
                await env.call_tool("echo", {"text": "x"})
    assert said[0] == said[1]


async def test_a_call_that_takes_too_long_is_cancelled_inside(gateway: Gateway, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with Environment("echo") as env:
        with pytest.raises(Exception, match="gave no answer within"):
            await env.call_tool("hang", {"pipe": str(pipe)}, timeout=0.3)
        await asyncio.to_thread(pipe.read_bytes)  # the tool opens it when it is cancelled
    await until_relayed(gateway, {"POST /mcp tools/call 0": 1.0})


# Who may


async def test_only_the_owner_is_told_where_a_socket_is_and_may_lease(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        people = {}
        for name, role in (("ann", Role.USER), ("bob", Role.USER), ("eve", Role.VIEWER), ("eva", Role.ADMIN)):
            people[name] = (await made.shared.accounts.create(name, role))[1]

        async def shown(who: str, id: str) -> Any:
            headers = [("authorization", f"Bearer {people[who]}")]
            return (await gateway.ask("GET", f"/env-instance/{id}", headers=headers))[1]["data"]

        async with Environment("echo", aenv_url=gateway.address.url, api_key=people["ann"]) as env:
            assert env.instance_id
            assert (await shown("ann", env.instance_id))["socket"]
            assert await shown("bob", env.instance_id) is None
            assert (await shown("eva", env.instance_id))["socket"]
        headers = [("authorization", f"Bearer {people['eve']}")]
        status, reply = await gateway.ask("POST", "/leases", headers=headers)
        assert (status, reply["error"]) == (403, "forbidden")


async def test_a_revoked_account_is_sent_through_the_gateway_and_refused_there(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        account, token = await made.shared.accounts.create("ann")
        async with Environment("echo", aenv_url=gateway.address.url, api_key=token) as env:
            await env.call_tool("echo", {"text": "x"})
            assert await relayed(gateway) == {}
            await made.shared.accounts.revoke(account.id)
            await made.leases.check()
            with pytest.raises(Unauthenticated, match="revoked"):
                await call_without_end(env)  # that its lease has ended is on its way


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["process", "native"])
async def test_another_user_of_the_host_goes_through_the_gateway(tmp_path: Path, engine: str) -> None:
    script = (
        "import asyncio, os, socket, sys\nfrom aenv import Environment\n"
        "async def main():\n"
        "    async with Environment('echo') as env:\n"
        "        path = env._launched.instance.socket\n"
        "        try:\n            socket.socket(socket.AF_UNIX).connect(path)\n"
        "        except PermissionError:\n            print('no', end=' ')\n"
        "        print((await env.call_tool('echo', {'text': 'x'})).content[0]['text'])\n"
        "asyncio.run(main())"
    )
    with ordinary_user() as user:
        async with running_gateway(tmp_path / "home", make_project(tmp_path), engine=engine) as gateway:
            url = f"AENV_SYSTEM_URL={gateway.address.url}"
            words = [*user.command("env", url), "AENV_HOME=/tmp", str(user.python), "-W", "ignore"]
            assert await line_of(process := await program(gateway, script, *words)) == "no x"
            assert await process.wait() == 0
            assert await relayed(gateway) == {CALL: 1.0}
            shown = await gateway.create()
            folder = Path(shown["socket"]).parent.stat()
            assert (folder.st_uid, stat.S_IMODE(folder.st_mode)) == (os.geteuid(), 0o700)


def test_a_socket_outside_a_folder_of_ones_own_is_not_opened(tmp_path: Path) -> None:
    here, away = Origin("127.0.0.1", 8080), Origin("gateway.example", 8080)
    folder = tmp_path / "instance"
    folder.mkdir(mode=0o700)
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert is_open_to_us(str(path), here)
        assert is_open_to_us(str(path), Origin("localhost", socket="/run/platform.sock"))
        assert not is_open_to_us(str(path), away)
        folder.chmod(0o750)
        assert not is_open_to_us(str(path), here)
        folder.chmod(0o700)
        path.rename(folder / "docker.sock")
        assert not is_open_to_us(str(folder / "docker.sock"), here)
        assert not is_open_to_us(str(path), here)  # missing
        path.write_text("a file")
        assert not is_open_to_us(str(path), here)


# Self-checks


@pytest.mark.slow
async def test_a_reward_with_a_self_check_is_still_checked(tmp_path: Path) -> None:
    sums = project(tmp_path, "sums", SUMS)
    async with (
        running_gateway(tmp_path / "home", sums) as gateway,
        Environment("sums", environment_variables=TWO, aenv_url=gateway.address.url) as env,
    ):
        await env.call_tool("submit", {"answer": 2})
        assert (await env.call_reward(), env.checked) == (1.0, ("held", ""))
        assert await env.check_task() == ("held", "")
        assert await relayed(gateway) == {"POST /other  200": 2.0}


# Processes


@pytest.fixture
async def frost(tmp_path: Path) -> AsyncIterator[tuple[Gateway, FrostEngine]]:
    """A gateway that freezes instances two seconds after the last call, or the end of the last lease."""
    home = tmp_path / "home"
    home.mkdir()
    engine = FrostEngine(home)
    async with (
        composed(home, make_project(tmp_path), engine=engine, freeze_after=2.0) as made,
        listening(made) as gateway,
    ):
        yield gateway, engine


@pytest.mark.slow
async def test_a_client_that_is_killed_in_a_call_holds_nothing_any_more(
    frost: tuple[Gateway, FrostEngine],
) -> None:
    gateway, engine = frost
    script = (
        "import asyncio\nfrom aenv import Environment\n"
        "async def main():\n"
        "    env = Environment('echo')\n"
        "    await env.call_tool('echo', {'text': 'x'})\n"
        "    print('called', flush=True)\n"
        "    await env.call_tool('hang')\n"
        "asyncio.run(main())"
    )
    process = await program(gateway, script)
    assert await line_of(process) == "called"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await engine.until("freeze")
    assert await relayed(gateway) == {}  # it could not say what it had called


@pytest.mark.slow
async def test_an_instance_that_is_called_no_more_is_frozen_and_its_next_call_thaws_it(
    frost: tuple[Gateway, FrostEngine],
) -> None:
    gateway, engine = frost
    async with Environment("echo", aenv_url=gateway.address.url) as env:
        await env.call_tool("echo", {"text": "x"})
        await engine.until("freeze")
        await until_relayed(gateway, {CALL: 1.0})  # told when it was let go of
        await env.call_tool("echo", {"text": "y"})
        await engine.until("thaw")
    await until_relayed(gateway, {CALL: 2.0})


@pytest.mark.slow
async def test_forks_of_a_client_call_by_themselves_and_do_not_hold_its_leases(
    frost: tuple[Gateway, FrostEngine],
) -> None:
    gateway, engine = frost
    script = (
        "import os, signal, sys\nfrom aenv import SyncEnvironment\n"
        "env = SyncEnvironment('echo')\n"
        "env.call_tool('echo', {'text': 'x'})\n"
        "readable, writable = os.pipe()\n"
        "if os.fork():\n"
        "    os.read(readable, 1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "with SyncEnvironment('echo', attach=env.instance_id) as mine:\n"
        "    told = [env.call_tool('echo', {'text': 'y'}), mine.call_tool('echo', {'text': 'z'})]\n"
        "    print(*(one.content[0]['text'] for one in told), flush=True)\n"
        "os.write(writable, b'.')\n"
        "os.close(1)\n"  # the test waits until no process has it
        "os.read(int(os.environ['UNTIL']), 1)\n"
    )
    readable, writable = os.pipe()
    try:
        script = f"import os\nos.environ['UNTIL'] = '{readable}'\n{script}"
        process = await program(gateway, script, pass_fds=[readable])
        os.close(readable)
        assert await line_of(process) == "y z"
        assert await process.wait() == -signal.SIGKILL
        await engine.until("freeze")  # while the fork lives
        await until_relayed(gateway, {CALL: 2.0})
    finally:
        os.close(writable)


@pytest.mark.slow
async def test_a_program_that_ends_without_releasing_tells_what_it_called(gateway: Gateway) -> None:
    both = (
        "from aenv import SyncEnvironment\nenv = SyncEnvironment('echo')\nenv.call_tool('echo', {'text': 'x'})",
        "import asyncio\nfrom aenv import Environment\n"
        "async def main():\n    await Environment('echo').call_tool('echo', {'text': 'x'})\nasyncio.run(main())",
    )
    for number, script in enumerate(both, 1):
        assert await (await program(gateway, script)).wait() == 0
        await until_relayed(gateway, {CALL: float(number)})


@pytest.mark.slow
async def test_a_call_whose_lease_the_gateway_has_ended_is_leased_again_until_it_is_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with (
        composed(home, make_project(tmp_path), engine=FrostEngine(home), freeze_after=2.0) as made,
        listening(made) as gateway,
        Environment("echo", aenv_url=gateway.address.url) as env,
    ):
        await env.call_tool("echo", {"text": "x"})
        calling = asyncio.create_task(env.call_tool("hang"))
        [first] = made.leases._holdings.values()
        first.ended.set()  # as when the gateway restarts, or the account is looked at again
        while not any(env.instance_id in one._held for one in made.leases._holdings.values() if one is not first):
            await asyncio.sleep(0.01)
        assert env.instance_id
        assert made.supervisor[env.instance_id].is_called
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling


async def test_the_socket_is_connected_while_the_lease_is_asked_for(tmp_path: Path) -> None:
    connected = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    async def lease(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A gateway that answers only when the instance has its connection, and then with none."""
        await reader.readuntil(b"\r\n\r\n")
        await connected.wait()
        writer.close()

    path = tmp_path / "socket"
    instance = await asyncio.start_unix_server(accept, path)
    gateway = await asyncio.start_server(lease, "127.0.0.1", 0)
    async with instance, gateway, Pool() as pool, asyncio.timeout(20):
        control = Origin("127.0.0.1", gateway.sockets[0].getsockname()[1])
        near = NearInstance("one", str(path), control, None, lambda: pool)
        with pytest.raises(NotSent):
            await near.exchange("POST", "/mcp", "tools/call", [], b"{}", lambda response: response.read())
