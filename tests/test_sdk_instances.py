"""The SDK's way to instances: tokens that go on, many at once, a place in the queue, commands and files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import parse_qs, unquote

import pytest

from aenv import Environment, SyncEnvironment
from aenv.base import errors
from aenv.base.addresses import Origin
from aenv.client.api import Api
from aenv.client.remote import Remote, RemoteOutput
from aenv.client.scheduler_client import AEnvSchedulerClient
from aenv.inside.runtime.messages import Reply, Request, json_reply
from tests.test_api import failure, success
from tests.test_api import gateway as scripted

SOURCES = Path(__file__).parent.parent / "docs" / "src"


def described(id: str, token: str | None = "t1"):
    mcp_url = f"/instances/{id}/mcp"
    return {"id": id, "status": "Running", "ip": "127.0.0.1", "tools": [], "token": token, "mcp_url": mcp_url}


class TokenGateway:
    """Knows which token is good, and which one it gives to those who ask; every call is a function's."""

    def __init__(self, *, good: set[str], given: str | None = "t2", fresh: str | None = None) -> None:
        self.good, self.given, self.fresh = good, given, fresh
        self.calls: list[str | None] = []
        self.asked = 0

    def __call__(self, request: Request) -> Reply:
        id = request.path.split("/")[2]
        if request.path.startswith("/env-instance/"):
            self.asked += request.method == "GET"
            return success(described(id, self.given if request.method == "GET" else "t1"))
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.calls.append(token)
        if token not in self.good:
            return failure(401, "unauthenticated", "the instance token has expired")
        headers = (("AEnvCore-Instance-Token", self.fresh),) if self.fresh else ()
        if request.path.endswith("/mcp"):
            result = {"content": [{"type": "text", "text": "hi"}]}
            body = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": result}
            return json_reply(body, headers=headers)
        return json_reply({"success": True, "data": 1}, headers=headers)


class TestTokens:
    async def test_a_fresh_token_in_a_reply_is_used_from_then_on(self):
        answer = TokenGateway(good={"t1", "t9"}, fresh="t9")
        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url) as env:
            await env.call_function("f")
            await env.call_tool("t")
            await env.call_function("f")
        assert answer.calls == ["t1", "t9", "t9"]
        assert answer.asked == 0

    @pytest.mark.parametrize("call", ["call_function", "call_tool"])
    async def test_an_expired_token_is_replaced_and_the_call_repeated(self, call):
        answer = TokenGateway(good={"t2"})
        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url) as env:
            await getattr(env, call)("f")
            await getattr(env, call)("f")
        assert answer.calls == ["t1", "t2", "t2"]
        assert answer.asked == 1

    async def test_calls_at_the_same_time_ask_for_one_new_token(self):
        answer = TokenGateway(good={"t2"})
        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url) as env:
            await asyncio.gather(*(env.call_function("f") for _ in range(20)))
        assert answer.asked == 1

    @pytest.mark.parametrize("given", ["t2", "t1", None])
    async def test_a_refusal_that_a_new_token_does_not_help_is_raised(self, given):
        answer = TokenGateway(good=set(), given=given)
        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url) as env:
            with pytest.raises(errors.Unauthenticated, match="the instance token has expired"):
                await env.call_function("f")
        assert len(answer.calls) <= 2
        assert answer.asked == 1

    async def test_a_401_of_the_authors_own_is_not_repeated(self):
        calls = 0

        def answer(request: Request) -> Reply:
            nonlocal calls
            if request.path.startswith("/env-instance/"):
                return success(described(request.path.split("/")[2]))
            calls += 1
            return json_reply({"success": False, "error": "log in first"}, 401)

        async with scripted(answer) as (url, seen), Environment("e@1", aenv_url=url) as env:
            with pytest.raises(errors.Unauthenticated, match="log in first"):
                await env.call_function("f")
        assert calls == 1
        assert not any(line.startswith("GET") for line in seen.seen)


class TestMany:
    @staticmethod
    def answer(request: Request) -> Reply:
        if request.path == "/env-instances":
            count = json.loads(request.body)["count"]
            return success([described(f"e-{n}") for n in range(count)])
        return success("Deleted successfully")

    async def test_many_cost_one_request_and_all_are_given_back_at_the_end(self):
        many = Environment.create_many
        async with scripted(self.answer) as (url, seen), many(3, "e@1", aenv_url=url, wait="1s") as envs:
            assert [env.instance_id for env in envs] == ["e-0", "e-1", "e-2"]
            assert seen.seen == ["POST /env-instances"]
        assert sorted(seen.seen[1:]) == [f"DELETE /env-instance/e-{n}" for n in range(3)]

    async def test_each_of_many_can_be_released_by_itself(self):
        async with scripted(self.answer) as (url, seen):
            first, second = await Environment.create_many(2, "e@1", aenv_url=url)
            async with first:
                pass
            assert seen.seen == ["POST /env-instances", "DELETE /env-instance/e-0"]
            assert (await second.get_env_info())["instance_id"] == "e-1"
            await second.release()

    async def test_many_that_cannot_be_made_are_none(self):
        refused = failure(500, "start_failed", "it does not start")
        async with scripted(lambda request: refused) as (url, seen):
            with pytest.raises(errors.StartFailed, match="it does not start"):
                await Environment.create_many(3, "e@1", aenv_url=url)
        assert seen.seen == ["POST /env-instances"]

    async def test_a_runtime_alone_makes_no_instances(self):
        with pytest.raises(errors.EnvironmentError, match="several instances need a gateway"):
            await Environment.create_many(2, "e@1", runtime_url="http://127.0.0.1:1")

    async def test_the_blocking_twin_is_a_list_and_a_context(self):
        def walk(url: str) -> list[str | None]:
            with SyncEnvironment.create_many(2, "e@1", aenv_url=url) as envs:
                return [env.instance_id for env in envs]

        async with scripted(self.answer) as (url, seen):
            assert await asyncio.to_thread(walk, url) == ["e-0", "e-1"]
        assert len(seen.seen) == 3


class TestWaiting:
    async def test_the_time_to_queue_is_sent(self):
        bodies = []

        def answer(request: Request) -> Reply:
            bodies.append(json.loads(request.body or b"{}"))
            return success(described(request.path.split("/")[2]))

        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url, wait="30s"):
            pass
        assert bodies[0]["wait"] == "30s"

    async def test_a_bad_time_is_refused_before_anything_is_sent(self):
        with pytest.raises(errors.InvalidRequest, match="bad duration 'soon'"):
            Environment("e@1", wait="soon")

    async def test_a_queue_that_was_too_long_is_an_error_with_the_place_in_it(self):
        full = failure(429, "too_many_requests", "3 wait before you, about 40 s", **{"retry-after": "40"})
        async with scripted(lambda request: full if request.method == "PUT" else success(None)) as (url, seen):
            with pytest.raises(errors.TooManyRequests, match="3 wait before you, about 40 s") as raised:
                await Environment("e@1", aenv_url=url, wait="20s").initialize()
        assert raised.value.retry_after == 40
        assert [line.split()[0] for line in seen.seen].count("PUT") == 1

    async def test_a_rate_limit_is_waited_for_within_that_time(self):
        replies = [failure(429, "too_many_requests", "slow down", **{"retry-after": "0.01"})]

        def answer(request: Request) -> Reply:
            return replies.pop() if replies else success(described(request.path.split("/")[2]))

        async with scripted(answer) as (url, seen), Environment("e@1", aenv_url=url, wait="20s"):
            pass
        assert [line.split()[0] for line in seen.seen] == ["PUT", "PUT", "DELETE"]


def events(*pieces: tuple[str, dict]) -> Reply:
    body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in pieces)
    return Reply(200, f": hello\n\n{body}".encode(), "text/event-stream")


class TestCommands:
    async def test_output_that_is_no_text_comes_as_it_is(self):
        pieces = [("stdout", {"text": "a\n\n"}), ("stderr", {"base64": "/w=="}), ("exit", {"code": 3})]

        def answer(request: Request) -> Reply:
            if not request.path.endswith("/exec"):
                return success(described("i"))
            assert json.loads(request.body) == {"command": ["ls", "-l"], "timeout": 5, "stdin": "in"}
            return events(*pieces)

        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url) as env:
            seen = [piece async for piece in env.exec_stream(["ls", "-l"], 5, "in")]
            done = await env.exec(["ls", "-l"], 5, b"in")
        assert seen == [
            RemoteOutput("stdout", b"a\n\n"),
            RemoteOutput("stderr", b"\xff"),
            RemoteOutput("exit", exit_code=3),
        ]
        assert (done.stdout, done.stderr, done.exit_code) == ("a\n\n", "�", 3)

    async def test_a_stream_without_an_exit_code_is_an_error(self):
        def answer(request: Request) -> Reply:
            return events(("stdout", {"text": "a"})) if request.path.endswith("/exec") else success(described("i"))

        async with scripted(answer) as (url, _), Environment("e@1", aenv_url=url) as env:
            with pytest.raises(errors.NetworkError, match="before the command did"):
                await env.exec("ls")

    async def test_a_runtime_alone_runs_no_commands(self):
        env = Environment("e@1", runtime_url="http://127.0.0.1:1", enable_data_plane=False)
        with pytest.raises(errors.EnvironmentError, match="exec failed: a runtime without a gateway"):
            await env.exec("ls")
        await env.release()


class Files:
    """The files of an instance, in a dict; folders are what paths have in common."""

    def __init__(self, **contents: bytes) -> None:
        self.contents = contents
        self.links: set[str] = set()

    def __call__(self, request: Request) -> Reply:
        if "/files" not in request.path:
            return success(described("i"))
        path = unquote(request.path).partition("/files/")[2]
        if request.method == "PUT":
            self.contents[path] = request.body
            return success(len(request.body))
        if not path:
            return success(self.listed(parse_qs(request.query).get("path", [""])[0]))
        if path not in self.contents:
            return failure(404, "not_found", f"no file {path!r}")
        return Reply(200, self.contents[path], "application/octet-stream")

    def listed(self, folder: str) -> list[dict]:
        prefix = f"{folder}/" if folder else ""
        below = {name[len(prefix) :] for name in (*self.contents, *self.links) if name.startswith(prefix)}
        return [self.entry(prefix, name, below) for name in sorted({name.partition("/")[0] for name in below})]

    def entry(self, prefix: str, name: str, below: set[str]) -> dict:
        kind = "link" if prefix + name in self.links else "file" if name in below else "folder"
        return {"path": prefix + name, "kind": kind, "size_bytes": 1, "modified_at": 0.0}


class TestFiles:
    async def test_a_folder_goes_up_and_comes_down_the_same(self, tmp_path):
        source = tmp_path / "source"
        (source / "deep" / "er").mkdir(parents=True)
        (source / "a b?.txt").write_bytes(b"a")
        (source / "deep" / "er" / "big").write_bytes(b"x" * 1_000_000)
        files = Files()
        async with scripted(files) as (url, _), Environment("e@1", aenv_url=url) as env:
            assert await env.upload(source, "data") == 2
            assert set(files.contents) == {"data/a b?.txt", "data/deep/er/big"}
            assert await env.download("data", tmp_path / "target") == 2
        target = tmp_path / "target"
        assert (target / "a b?.txt").read_bytes() == b"a"
        assert (target / "deep" / "er" / "big").read_bytes() == b"x" * 1_000_000
        assert sorted(path.name for path in target.rglob("*")) == ["a b?.txt", "big", "deep", "er"]

    @pytest.mark.parametrize(
        ("remote", "there"), [("b.txt", "b.txt"), ("in/", "in/a.txt"), ("", "a.txt"), ("in/b", "in/b")]
    )
    async def test_a_file_keeps_its_name_where_none_is_given(self, tmp_path, remote, there):
        (tmp_path / "a.txt").write_bytes(b"a")
        files = Files()
        async with scripted(files) as (url, _), Environment("e@1", aenv_url=url) as env:
            assert await env.upload(tmp_path / "a.txt", remote) == 1
            assert await env.download(there, tmp_path) == 1
        assert files.contents == {there: b"a"}
        assert (tmp_path / there.rpartition("/")[2]).read_bytes() == b"a"

    async def test_a_listing_cannot_lead_out_of_the_target(self, tmp_path):
        class Lying(Files):
            def listed(self, folder: str) -> list[dict]:
                return [{"path": "..", "kind": "folder", "size_bytes": 0, "modified_at": 0.0}]

        async with scripted(Lying()) as (url, _), Environment("e@1", aenv_url=url) as env:
            with pytest.raises(errors.EnvironmentError, match="a file with the name"):
                await env.download("", tmp_path / "target")
        assert [path.name for path in tmp_path.iterdir()] == ["target"]

    async def test_links_below_a_folder_are_left_out(self, tmp_path):
        files = Files(**{"d/a": b"a"})
        files.links.add("d/loop")
        async with scripted(files) as (url, _), Environment("e@1", aenv_url=url) as env:
            assert await env.download("d", tmp_path / "target") == 1

    async def test_a_file_that_is_not_there_leaves_nothing_behind(self, tmp_path):
        files = Files(**{"d/a": b"a"})
        async with scripted(files) as (url, _), Environment("e@1", aenv_url=url) as env:
            with pytest.raises(errors.NotFound, match=r"no file 'd/b' in instance 'i'"):
                await env.download("d/b", tmp_path / "b")
            with pytest.raises(FileNotFoundError):
                await env.upload(tmp_path / "nothing", "x")
        assert list(tmp_path.iterdir()) == []

    async def test_a_download_that_breaks_leaves_what_was_there(self, tmp_path):
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = await reader.readline()
            await reader.readuntil(b"\r\n\r\n")
            listing = json.dumps({"success": True, "data": Files(a=b"").listed("")}).encode()
            body, length = (listing, len(listing)) if b"?path=" in line else (b"half", 1000)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (length, body))
            await writer.drain()
            writer.close()

        (tmp_path / "a").write_bytes(b"whole")
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        async with server, Api(Origin("127.0.0.1", server.sockets[0].getsockname()[1])) as api:
            with pytest.raises(errors.NetworkError):
                await Remote(api, "i").download("a", tmp_path)
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"whole")]


async def test_lines_of_a_log_come_whole_whatever_the_chunks():
    printed = "one\n\ntwo \u2028 ü\nthree".encode()

    def answer(request: Request) -> Reply:
        return Reply(200, printed, "text/plain") if "/logs" in request.path else success(described("i"))

    async with scripted(answer) as (url, seen), Environment("e@1", aenv_url=url) as env:
        assert [line async for line in env.logs()] == ["one", "", "two \u2028 ü", "three"]
    assert "GET /env-instance/i/logs" in seen.seen


async def test_the_scheduler_client_drives_services():
    service = {"id": "s", "status": "Running", "replicas": 1, "available_replicas": 1, "service_url": "http://x"}

    def answer(request: Request) -> Reply:
        return success([service] if request.path.endswith("/list") else service)

    async with scripted(answer) as (url, seen), AEnvSchedulerClient(url) as client:
        assert (await client.create_env_service("e@1")).service_url == "http://x"
        assert [found.id for found in await client.list_env_services("e@1")] == ["s"]
        assert (await client.update_env_service("s", replicas=2, version="1.1")).id == "s"
        assert await client.delete_env_service("s", delete_storage=True) is True
    assert seen.seen == [
        "POST /env-service",
        "GET /env-service/e@1/list",
        "PUT /env-service/s",
        "DELETE /env-service/s",
    ]
