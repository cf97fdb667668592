"""A model for code inside an instance: by a relay that leads only there, and without the model's key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aenv import Environment
from aenv.base.errors import AEnvError, Forbidden, InvalidRequest
from aenv.isolation.egress.exchanges import ProxyRequest, Refusal, _Cover
from aenv.isolation.egress.model_route import PORT, ModelRoute
from tests.command_line import Server, environ, serving
from tests.gateways import make_project
from tests.native import traces
from tests.streaming_models import StreamingModel, completion, streaming_model

pytestmark = pytest.mark.slow  # each starts an engine and a relay, which are programs

KEY = "sk-the-real-key-of-the-server"
OPERATORS = "sk-a-key-in-a-variable-of-the-gateway"
ASKING = '''
import os, socket
from pathlib import Path
from aenv import register_tool


@register_tool
def ask(request: str, port: int = 0) -> str:
    """Send bytes to the relay, and read all that comes."""
    from urllib.parse import urlsplit

    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    with socket.create_connection((url.hostname, port or url.port), timeout=20) as client:
        client.sendall(request.encode())
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer.decode()


@register_tool
def variables() -> dict:
    """What the instance was given."""
    return dict(os.environ)


@register_tool
def all_that_can_be_read() -> str:
    """Variables and command lines of every process, and the workspace."""
    found = []
    of_processes = [path for name in ("environ", "cmdline") for path in Path("/proc").glob(f"[0-9]*/{name}")]
    for path in [*of_processes, *Path(".").rglob("*")]:
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return " ".join(found)


@register_tool
def reached(host: str, port: int) -> int:
    """The error of a connection."""
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex((host, port))
'''


def post(token: str, path: str = "/v1/chat/completions", *headers: str, body: Any = None) -> str:
    content = json.dumps({"messages": []} if body is None else body)
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(content)}", "", content])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("asking"), "asking", code=ASKING, network="none")


class Asking:
    """An instance that may ask a model."""

    def __init__(self, env: Environment, model: StreamingModel) -> None:
        self.env, self.model = env, model

    async def variables(self) -> dict[str, str]:
        found: dict[str, str] = (await self.env.call_tool("variables")).structured
        return found

    async def send(self, text: str) -> str:
        return (await self.env.call_tool("ask", {"request": text})).text

    async def token(self) -> str:
        return (await self.variables())["OPENAI_API_KEY"]


@asynccontextmanager
async def asking(server: tuple[str, Path], *replies: Any, key: str | None = KEY) -> AsyncIterator[Asking]:
    async with streaming_model(*replies) as model:
        options = {"aenv_url": server[0], "model_url": model.url, "model_key": key}
        async with Environment("asking@1.0.0", **options) as env:  # type: ignore[arg-type]
            yield Asking(env, model)


def gateway(project: Path, home: Path, engine: str, *options: str) -> Any:
    ports = ("--port", "0", "--data-port", "0", "--log-level", "WARNING")
    known = environ(MODEL_KEY=OPERATORS)
    return serving("serve", project, "--engine", engine, "--home", home, *ports, *options, env=known)


def url_of(server: Server) -> str:
    *_, line = server.until("AENV_SYSTEM_URL", on="stderr")
    return line.partition("=")[2]


@pytest.fixture(scope="module", params=["native", "process"])
def served(
    request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    home = tmp_path_factory.mktemp("relays") / "home"
    with gateway(project, home, request.param, "--model-url", "loopback") as server:
        yield url_of(server), home
    if request.param == "native":
        assert traces(home) == []


class TestRelay:
    async def test_the_variables_lead_to_the_model_and_the_key_is_added_on_the_way(self, served: Any) -> None:
        async with asking(served, completion("two")) as it:
            given = await it.variables()
            assert given["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
            assert given["ANTHROPIC_BASE_URL"] + "/v1" == given["OPENAI_BASE_URL"]
            answer = await it.send(post(given["OPENAI_API_KEY"], "/v1/chat/completions?x=1"))
            assert answer.startswith("HTTP/1.1 200") and '"two"' in answer
            asked = it.model.asked[0]
            assert asked.line == "POST /v1/chat/completions?x=1 HTTP/1.1"
            assert asked.headers["authorization"] == f"Bearer {KEY}"
            assert given["OPENAI_API_KEY"] not in str(asked.headers)

    async def test_the_key_cannot_be_read_inside_even_when_the_server_repeats_it(self, served: Any) -> None:
        async with asking(served, (401, f"wrong key {KEY}")) as it:
            answer = await it.send(post(await it.token()))
            assert answer.endswith("wrong key " + "*" * len(KEY))
            assert KEY not in (await it.env.call_tool("all_that_can_be_read")).text
            assert KEY not in json.dumps(await it.env.get_env_info(), default=str)
            assert KEY not in "".join([line async for line in it.env.logs()])

    @pytest.mark.parametrize(
        "line",
        [
            "/admin",
            "/v1",
            "/v1/../admin",
            "/v1/%2e%2e/admin",
            "/v1//admin",
            "/v1/./models",
            "/v1\\..\\admin",
            "/v10/models",
            "http://127.0.0.1:1/v1/models",
            "http://example.com/v1/models",
        ],
    )
    async def test_nothing_else_is_reached_by_it(self, served: Any, line: str) -> None:
        async with asking(served) as it:
            answer = await it.send(post(await it.token(), line))
            assert answer.startswith("HTTP/1.1 40")
            assert it.model.asked == []

    async def test_a_host_of_the_clients_choice_a_tunnel_and_other_methods(self, served: Any) -> None:
        async with asking(served, completion()) as it:
            token = await it.token()
            key = f"Authorization: Bearer {token}\r\n\r\n"
            for start in ("CONNECT 127.0.0.1:1 HTTP/1.1", "DELETE /v1/models HTTP/1.1", "GET / HTTP/1.1"):
                assert (await it.send(f"{start}\r\n{key}")).startswith("HTTP/1.1 40")
            assert it.model.asked == []
            text = post(token).replace("Host: x", "Host: example.com")
            await it.send(text)
            assert it.model.asked[0].headers["host"] in it.model.url

    async def test_a_request_without_the_token_is_refused(self, served: Any) -> None:
        async with asking(served) as it:
            both = post(await it.token()).replace("Host: x", "x-api-key: other")
            for text in (post("other"), post(KEY), "GET /v1/models HTTP/1.1\r\n\r\n", both):
                assert (await it.send(text)).startswith("HTTP/1.1 401")
            assert it.model.asked == []

    async def test_a_second_request_hidden_behind_the_first_is_not_sent(self, served: Any) -> None:
        async with asking(served, completion(), completion()) as it:
            text = post(await it.token())
            await it.send(text + "GET /admin HTTP/1.1\r\n\r\n")
            assert [one.line for one in it.model.asked] == ["POST /v1/chat/completions HTTP/1.1"]


@pytest.fixture(scope="module")
def native(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    home = tmp_path_factory.mktemp("native") / "home"
    with gateway(project, home, "native", "--model-url", "loopback") as server:
        yield url_of(server), home
    assert traces(home) == []


class TestIsolation:
    async def test_the_model_itself_is_out_of_reach_and_so_is_the_relay_of_another(self, native: Any) -> None:
        async with asking(native, completion()) as it, asking(native) as other:
            port = int(it.model.url.rpartition(":")[2].partition("/")[0])
            assert (await it.env.call_tool("reached", {"host": "127.0.0.1", "port": port})).structured != 0
            token, others = await it.token(), await other.token()
            assert token != others
            assert (await it.send(post(others))).startswith("HTTP/1.1 401")
            # The same port in both, each in a network of its own.
            assert (await it.variables())["OPENAI_BASE_URL"].endswith(f":{PORT}/v1")
            with pytest.raises(AEnvError, match=f"{PORT}"):
                await it.env.presign_url(PORT)

    async def test_an_instance_without_a_model_has_no_relay(self, native: Any) -> None:
        async with Environment("asking@1.0.0", aenv_url=native[0]) as env:
            assert "OPENAI_BASE_URL" not in (await env.call_tool("variables")).structured
            assert (await env.call_tool("reached", {"host": "127.0.0.1", "port": PORT})).structured != 0

    async def test_a_model_plays_the_world_of_an_instance_without_a_network(self, native: Any) -> None:
        said = json.dumps({"observation": "Warm air rises.", "changes": {"heater": True}})
        async with streaming_model(completion(said)) as model:
            options: Any = {"aenv_url": native[0], "model_url": model.url, "model_key": KEY, "network": "none"}
            variables: Any = {"SIMULATION_LLM": "m"}
            async with Environment("simulation", environment_variables=variables, **options) as env:
                result = await env.call_tool("act", {"action": "heater", "arguments": {"on": True}})
                assert "Warm air rises." in result.text
            assert model.asked[0].headers["authorization"] == f"Bearer {KEY}"

    async def test_the_relay_goes_on_after_the_gateway_was_started_again_and_ends_with_its_instance(
        self, project: Path, tmp_path: Path
    ) -> None:
        home, allowed = tmp_path / "home", ("--model-url", "loopback")
        async with streaming_model(completion("one"), completion("two")) as model:
            with gateway(project, home, "native", *allowed, "--keep-instances") as server:
                options = {"aenv_url": url_of(server), "model_url": model.url, "model_key": KEY}
                env = Environment("asking@1.0.0", **options)  # type: ignore[arg-type]
                await env.initialize()
                token = (await env.call_tool("variables")).structured["OPENAI_API_KEY"]
                before = (await env.call_tool("ask", {"request": post(token)})).text
                id = env.instance_id
            with gateway(project, home, "native", *allowed) as server:  # which ends what is left
                again = Environment("asking@1.0.0", aenv_url=url_of(server), attach=id)
                assert '"two"' in (await again.call_tool("ask", {"request": post(token)})).text
                assert model.asked[1].headers["authorization"] == f"Bearer {KEY}"
                await again._launched.api.delete_instance(id)  # type: ignore[union-attr, arg-type]
                await again.release()
        assert '"one"' in before
        assert traces(home) == []


class TestRules:
    async def test_only_what_the_operator_allows_with_the_operators_key(
        self, project: Path, tmp_path: Path
    ) -> None:
        async with streaming_model(completion()) as model:
            options = ("--model-url", model.url, "--model-key-env", "MODEL_KEY")
            with gateway(project, tmp_path / "home", "process", *options) as server:
                url = url_of(server)
                with pytest.raises(Forbidden, match="--model-url"):
                    async with Environment("asking@1.0.0", aenv_url=url, model_url="http://127.0.0.1:1/v1"):
                        pass
                with pytest.raises(InvalidRequest, match="field 'model'"):
                    async with Environment("asking@1.0.0", aenv_url=url, model_url="https://example.com/v1"):
                        pass
                async with Environment("asking@1.0.0", aenv_url=url, model_url=model.url) as env:
                    token = (await env.call_tool("variables")).structured["OPENAI_API_KEY"]
                    await env.call_tool("ask", {"request": post(token)})
            assert model.asked[0].headers["authorization"] == f"Bearer {OPERATORS}"

    def test_a_route_shows_no_secret(self) -> None:
        route = ModelRoute.parse("http://127.0.0.1:8000/v1", KEY, "token")
        asked = route.request(b"GET /v1/models HTTP/1.1\r\nx-api-key: token")
        assert isinstance(asked, ProxyRequest) and KEY.encode() in asked.head
        assert KEY not in repr(route) + repr(asked) and "token" not in repr(route).replace("token=", "")
        with pytest.raises(Refusal, match="API key"):
            route.request(b"GET /v1/models HTTP/1.1\r\nx-api-key: wrong")

    def test_a_secret_is_covered_wherever_the_pieces_are_cut(self) -> None:
        text = b"aa-sekret-sekre-sekret"
        for cut in range(len(text) + 1):
            cover = _Cover(b"sekret")
            got = cover.passed(text[:cut]) + cover.passed(text[cut:]) + cover.rest()
            assert got == b"aa-******-sekre-******"
