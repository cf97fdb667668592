"""The SDK and instances behind a real gateway: many at once, commands, files, ports, their past."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from aenv import Environment, SyncEnvironment
from aenv.base import errors
from aenv.base.addresses import parse_url
from aenv.base.http1 import Pool
from tests.gateways import make_project, running_gateway
from tests.lease_clients import without_sockets

SOURCES = Path(__file__).parent.parent / "docs" / "src"

CODE = """
import http.server, sys, threading
from aenv import register_tool

print("loaded", flush=True)

@register_tool
def say(text: str) -> str:
    print(text, flush=True)
    return text

@register_tool
def serve() -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
"""


class TestThroughAGateway:
    @pytest.fixture
    async def gateway(self, tmp_path, monkeypatch):
        async with running_gateway(tmp_path / "home", make_project(tmp_path, "my-env", code=CODE)) as running:
            monkeypatch.setenv("AENV_SYSTEM_URL", running.address.url)
            yield running

    async def test_what_is_printed_can_be_read_and_followed(self, gateway):
        async with Environment("my-env@1.0.0") as env:
            await env.call_tool("say", {"text": "one"})
            printed = [line async for line in env.logs()]
            assert (printed[0], printed[-1]) == ("loaded", "one")
            following = env.logs(follow=True)
            assert [await anext(following) for _ in printed] == printed
            await env.call_tool("say", {"text": "two"})
            assert await anext(following) == "two"
            async with Environment("my-env@1.0.0", attach=env.instance_id) as other:
                await gateway.ask("DELETE", f"/env-instance/{other.instance_id}")
            assert [line async for line in following] == []

    async def test_commands_run_beside_the_environment(self, gateway):
        async with Environment("my-env@1.0.0", environment_variables={"A": "1"}) as env:
            done = await env.exec("echo $A; cat; echo err >&2; exit 3", stdin="in\n")
            assert (done.stdout, done.stderr, done.exit_code) == ("1\nin\n", "err\n", 3)
            done = await env.exec(["printf", "%s", "$A"])
            assert (done.stdout, done.exit_code) == ("$A", 0)
            pieces = env.exec_stream("echo first; exec sleep 60")
            assert (await anext(pieces)).data == b"first\n"
            await pieces.aclose()
            assert (await env.exec("sleep 60", timeout=0.1)).exit_code == 124
            with pytest.raises(errors.InvalidRequest, match="stdin must be text in UTF-8"):
                await env.exec("cat", stdin=b"\xff")

    async def test_files_go_in_and_out_of_the_workspace(self, gateway, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a b").write_bytes(bytes(range(256)))
        async with Environment("my-env@1.0.0") as env:
            assert await env.upload(tmp_path / "in", "data/deep") == 1
            listed = await env.list_files("data")
            assert [(entry["path"], entry["kind"]) for entry in listed] == [("data/deep", "folder")]
            assert (await env.exec("wc -c < 'data/deep/a b'")).stdout.strip() == "256"
            assert await env.download("data", tmp_path / "out") == 1
            assert await env.download("data/deep/a b", tmp_path / "copy") == 1
            with pytest.raises(errors.EnvironmentError):
                await env.upload(tmp_path / "in" / "a b", "../outside")
        assert (tmp_path / "out" / "deep" / "a b").read_bytes() == bytes(range(256))
        assert (tmp_path / "copy").read_bytes() == bytes(range(256))

    async def test_its_past_is_told(self, gateway):
        async with Environment("my-env@1.0.0") as env:
            await env.call_tool("say", {"text": "one"})
            assert "running" in [event["what"] for event in await env.events()]
            [call] = [call for call in await env.history() if call["name"] == "say"]
            assert (call["arguments"], call["ok"]) == ('{"text":"one"}', True)

    async def test_a_port_inside_has_a_url_for_a_while(self, gateway):
        async with Environment("my-env@1.0.0") as env:
            port = (await env.call_tool("serve")).structured["result"]
            await env.upload(__file__, "shown.txt")
            origin, target = parse_url(await env.presign_url(port))
            async with Pool() as pool:
                response = await pool.request(origin, "GET", f"{target.rstrip('/')}/shown.txt")
                assert (response.status, await response.read()) == (200, Path(__file__).read_bytes())

    async def test_many_are_made_and_given_back(self, gateway):
        async with Environment.create_many(3, "my-env@1.0.0", labels={"experiment": "x"}) as envs:
            said = await asyncio.gather(*(env.call_tool("say", {"text": env.instance_id}) for env in envs))
            assert [result.text for result in said] == [env.instance_id for env in envs]
        assert gateway.leftovers() == []

    @pytest.mark.slow
    async def test_a_batch_whose_client_goes_away_leaves_none_behind(self, tmp_path):
        alive = tmp_path / "alive"
        os.mkfifo(alive)
        code = f"""
            import os, threading
            try:
                os.close(os.open({str(tmp_path / "first")!r}, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                threading.Event().wait()
            held = open({str(alive)!r}, "w")
            print("ready", file=held, flush=True)
        """
        async with running_gateway(tmp_path / "home", make_project(tmp_path, code=code)) as running:
            creating = asyncio.ensure_future(
                Environment.create_many(2, "echo@1.0.0", aenv_url=running.address.url).__aenter__()
            )
            held = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(held), os.fdopen(os.open(alive, os.O_RDONLY | os.O_NONBLOCK))
            )
            with contextlib.closing(transport):
                assert await held.readline() == b"ready\n"
                while not (await running.ask("GET", "/env-instance/*/list?status=running"))[1]["data"]:
                    pass
                creating.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await creating
                async with asyncio.timeout(5):
                    assert await held.read() == b""  # the end of the file: nobody holds it open any more

    async def test_a_token_outlives_its_five_minutes(self, tmp_path, monkeypatch):
        without_sockets(monkeypatch)
        ahead = 0.0
        # The gateway's clock: the only way to see minutes pass.
        monkeypatch.setattr("aenv.control.gateway.tokens.time", SimpleNamespace(time=lambda: time.time() + ahead))
        strict = running_gateway(tmp_path / "home", make_project(tmp_path), require_data_token=True)
        async with strict as running, Environment("echo@1.0.0", aenv_url=running.address.url) as env:
            first = env._launched.session._token
            ahead = 200.0
            await env.call_tool("echo", {"text": "in use"})
            assert env._launched.session._token != first
            ahead = 400.0  # the first one is over, the fresh one is not
            second = env._launched.session._token
            await env.call_tool("echo", {"text": "in use"})
            assert env._launched.session._token != second
            ahead = 9000.0  # over while nobody called
            assert (await env.call_tool("echo", {"text": "again"})).text == "again"
            status, reply = await running.ask(
                "POST", f"/instances/{env.instance_id}/tools/echo", {"text": "x"}, origin=running.data
            )
            assert (status, reply["error"]) == (401, "unauthenticated")

    async def test_the_blocking_twin_does_all_that_too(self, gateway, tmp_path):
        def walk() -> list[object]:
            with SyncEnvironment("my-env@1.0.0") as env:
                env.upload(__file__, "f")
                return [
                    *(env.exec("ls").stdout, [piece.exit_code for piece in env.exec_stream("exit 2")]),
                    *(next(env.logs()), env.download("f", tmp_path / "f"), env.list_files()[0]["path"]),
                    *(len(env.events()) > 0, env.history()),
                ]

        assert await asyncio.to_thread(walk) == ["f\n", [2], "loaded", 1, "f", True, []]

    @pytest.mark.slow
    async def test_the_pages_snippet_runs(self, tmp_path):
        project = make_project(tmp_path, "notes", code=(SOURCES / "notes_env.py").read_text())
        async with running_gateway(tmp_path / "home", project) as running:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                SOURCES / "use_many.py",
                env={**os.environ, "AENV_SYSTEM_URL": running.address.url},
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate()
        assert said.decode().splitlines() == [str({f"note {n}": "it rains"}) for n in range(4)]
