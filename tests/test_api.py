"""The control client against a scripted gateway: what is retried, what is not, and how published ones are used."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest

from aenv import Environment
from aenv.base import errors
from aenv.client.scheduler_client import AEnvSchedulerClient
from aenv.inside.runtime.http import Listener
from aenv.inside.runtime.messages import Reply, Request, Stream, json_reply

Answer = Callable[[Request], Reply]


class Gateway:
    """Answers with what the test scripted, and remembers what was asked."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[str] = []
        self._answer = answer

    async def handle(self, request: Request, stream: Stream) -> Reply:
        self.seen.append(f"{request.method} {request.path}")
        return self._answer(request)


@asynccontextmanager
async def gateway(answer: Answer, port: int = 0):
    scripted = Gateway(answer)
    listening = socket.create_server(("127.0.0.1", port))
    async with Listener(scripted.handle, max_body_bytes=1 << 20) as listener:
        await listener.listen(listening)
        yield f"http://127.0.0.1:{listener.port}", scripted


def success(data) -> Reply:
    return json_reply({"success": True, "code": 0, "message": "", "data": data})


def failure(status: int, code: str, message: str, **headers: str) -> Reply:
    body = {"success": False, "code": status, "message": message, "data": None, "error": code}
    return json_reply(body, status, tuple(headers.items()))


def instance(request: Request):
    return {"id": request.path.rsplit("/", 1)[1], "status": "Running", "ip": "127.0.0.1", "tools": []}


async def test_a_create_that_is_refused_for_now_is_tried_again_with_the_same_id():
    replies = [failure(429, "too_many_requests", "slow down", **{"retry-after": "0"})]
    replies += [failure(503, "unavailable", "busy", **{"retry-after": "0.01"})]

    def answer(request: Request) -> Reply:
        return replies.pop(0) if replies else success(instance(request))

    async with gateway(answer) as (url, seen), Environment("e@1", aenv_url=url):
        pass
    puts = [line for line in seen.seen if line.startswith("PUT")]
    assert len(puts) == 3
    assert len(set(puts)) == 1


async def test_the_startup_timeout_bounds_all_attempts_together():
    refused = failure(503, "unavailable", "busy", **{"retry-after": "3600"})
    async with gateway(lambda request: refused if request.method == "PUT" else success(None)) as (url, seen):
        with pytest.raises(errors.EnvironmentError, match=r"did not start 'e@1' within 0.05 s"):
            async with Environment("e@1", aenv_url=url, startup_timeout=0.05):
                pass
    assert [line.split()[0] for line in seen.seen] == ["PUT", "DELETE"]


async def test_retries_end_after_max_retries_with_the_last_error():
    refused = failure(429, "too_many_requests", "quota", **{"retry-after": "0"})
    async with gateway(lambda request: refused) as (url, seen):
        with pytest.raises(errors.TooManyRequests, match="quota"):
            async with Environment("e@1", aenv_url=url, max_retries=2):
                pass
    assert [line.split()[0] for line in seen.seen].count("PUT") == 3


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "invalid_request", errors.InvalidRequest),
        (401, "unauthenticated", errors.Unauthenticated),
        (404, "not_found", errors.NotFound),
        (500, "start_failed", errors.StartFailed),
    ],
)
async def test_other_errors_are_raised_at_once_as_the_class_the_server_named(status, code, kind):
    async with gateway(lambda request: failure(status, code, "why")) as (url, seen):
        with pytest.raises(kind, match="why"):
            async with Environment("e@1", aenv_url=url):
                pass
    assert [line.split()[0] for line in seen.seen].count("PUT") == 1


async def test_a_cancelled_create_deletes_what_it_may_have_made():
    asked = asyncio.Event()
    never = asyncio.Event()

    class Slow(Gateway):
        async def handle(self, request, stream):
            self.seen.append(f"{request.method} {request.path}")
            if request.method == "PUT":
                asked.set()
                await never.wait()
            return success("Deleted successfully")

    scripted = Slow(lambda request: success(None))
    async with Listener(scripted.handle, max_body_bytes=1 << 20) as listener:
        await listener.listen(socket.create_server(("127.0.0.1", 0)))
        entering = asyncio.ensure_future(
            Environment("e@1", aenv_url=f"http://127.0.0.1:{listener.port}").initialize()
        )
        await asked.wait()
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
    put, delete = scripted.seen
    assert (put.split()[0], delete.split()[0]) == ("PUT", "DELETE")
    assert put.split()[1] == delete.split()[1]


async def test_a_release_that_is_cancelled_still_deletes_and_is_then_cancelled():
    asked, go_on = asyncio.Event(), asyncio.Event()
    deleted = asyncio.Event()

    async def control(request: Request, stream: Stream) -> Reply:
        if request.method == "PUT":
            return success(instance(request))
        asked.set()
        await go_on.wait()
        deleted.set()
        return success("Deleted successfully")

    async with Listener(control, max_body_bytes=1 << 20) as listener:
        await listener.listen(socket.create_server(("127.0.0.1", 0)))
        env = Environment("e@1", aenv_url=f"http://127.0.0.1:{listener.port}")
        await env.initialize()
        releasing = asyncio.ensure_future(env.release())
        await asked.wait()
        releasing.cancel()
        for _ in range(10):  # turns of the loop, enough for a cancellation to go all the way
            await asyncio.sleep(0)
        assert not releasing.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        assert deleted.is_set()


async def test_a_release_that_fails_is_logged_and_not_raised(caplog):
    def answer(request: Request) -> Reply:
        return success(instance(request)) if request.method == "PUT" else failure(500, "internal", "broken")

    async with gateway(answer) as (url, _), Environment("e@1", aenv_url=url):
        pass
    assert "could not release instance" in caplog.text


async def test_the_api_key_goes_to_the_control_port(monkeypatch):
    keys: list[str | None] = []

    def answer(request: Request) -> Reply:
        keys.append(request.headers.get("authorization"))
        return success(instance(request) if request.method == "PUT" else None)

    monkeypatch.setenv("AENV_API_KEY", "from-variable")
    async with gateway(answer) as (url, _):
        async with Environment("e@1", aenv_url=url):
            pass
        async with Environment("e@1", aenv_url=url, api_key="given"):
            pass
    assert keys == ["Bearer from-variable", "Bearer from-variable", "Bearer given", "Bearer given"]


async def test_ttl_is_sent_only_when_given():
    bodies: list[dict] = []

    def answer(request: Request) -> Reply:
        if request.method == "PUT":
            bodies.append(json.loads(request.body))
            return success(instance(request))
        return success(None)

    async with gateway(answer) as (url, _):
        async with Environment("e", aenv_url=url, resources={"cpu": "2"}):
            pass
        async with Environment("e@1", ttl="2h", environment_variables={"A": "1"}, arguments=["--x"], aenv_url=url):
            pass
    assert bodies[0]["envName"] == "e"
    assert "ttl" not in bodies[0]
    assert bodies[0]["resources"] == {"cpu": "2"}
    assert (bodies[1]["ttl"], bodies[1]["environment_variables"], bodies[1]["arguments"]) == (
        *("2h", {"A": "1"}, ["--x"]),
    )


async def test_a_post_that_may_have_arrived_is_not_repeated():
    attempts = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        await reader.readuntil(b"\r\n\r\n")
        attempts += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, AEnvSchedulerClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(errors.NetworkError):
            await client.create_env_instance("e@1")
    assert attempts == 1


async def test_the_scheduler_client_must_be_connected():
    with pytest.raises(errors.NetworkError, match="Client not connected"):
        await AEnvSchedulerClient("http://x").get_env_instance("i")


async def test_the_scheduler_client_lists_waits_and_presigns():
    def answer(request: Request) -> Reply:
        if request.path.endswith("/list"):
            return success([{"id": "a", "status": "Running"}, {"id": "b", "status": "Failed"}])
        if request.path.endswith("/presign-url"):
            return success({"url": "http://there"})
        return success({"id": "a", "status": "Running"})

    async with gateway(answer) as (url, seen), AEnvSchedulerClient(url) as client:
        assert [i.id for i in await client.list_env_instances()] == ["a", "b"]
        assert [i.id for i in await client.list_env_instances("e", status="Failed")] == ["b"]
        assert (await client.wait_for_status("a", "Running")).id == "a"
        assert await client.presign_url("a", 80) == "http://there"
        assert await client.delete_env_instance("a") is True
    assert seen.seen[:2] == ["GET /env-instance/*/list", "GET /env-instance/e/list"]


async def test_a_create_without_a_key_says_how_to_give_one_and_releases_nothing(caplog):
    refused = failure(401, "unauthenticated", "missing Authorization header; send 'Authorization: Bearer <token>'")
    async with gateway(lambda request: refused) as (url, seen):
        with pytest.raises(errors.Unauthenticated) as raised:
            await Environment("e@1", aenv_url=url).initialize()
        assert raised.value.message == f"missing Authorization header; set AENV_API_KEY, or run 'aenv login {url}'"
        with pytest.raises(errors.Unauthenticated, match="Bearer"):  # who has sent one reads what the server says
            await Environment("e@1", aenv_url=url, api_key="k").initialize()
    assert {line.split()[0] for line in seen.seen} == {"PUT"}
    assert caplog.text == ""
