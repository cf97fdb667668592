"""Fuzzing the gateway: whatever is asked on either port is answered below 500, and it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.judges.servers import ENVIRONMENTS, Gateway, gateway
from tests.raw import connected

pytestmark = pytest.mark.slow  # hundreds of requests

fuzzed = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=list(HealthCheck),  # one server for all examples
)
# What a request can name, beside nonsense; no environment of that name exists, so nothing is ever started.
_NAMES = st.sampled_from(["nothing@1.0.0", "nothing", "*", "a@b@c", "../x", ""]) | st.text(max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = ["envName", "datasource", "ttl", "environment_variables", "arguments", "owner", "labels", "resources"]
_ID = "nothing-" + "a" * 26


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("home"), ENVIRONMENTS / "portable") as running:
        yield running
        instance = running.create("portable")
        with connected(running.url) as raw:
            assert raw.request("DELETE", f"/env-instance/{instance['id']}").status == 200


@fuzzed
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
    path=st.sampled_from(
        ["/env-instance", "/env-instance/{}", "/env-instance/{}/list", "/health", "/instances/{}/mcp"]
    )
    | st.text(max_size=20).map(lambda text: f"/{quote(text)}"),
    name=_NAMES | st.just(_ID),
    query=st.dictionaries(st.sampled_from(["envName", "x"]), st.text(max_size=8), max_size=2),
    body=st.binary(max_size=40) | _JSON.map(lambda value: json.dumps(value).encode()),
    on_data_port=st.booleans(),
)
def test_no_request_breaks_the_gateway(
    server: Gateway, method: str, path: str, name: str, query: dict[str, str], body: bytes, on_data_port: bool
) -> None:
    target = path.format(quote(name, safe="*@"))
    if query:
        target += "?" + "&".join(f"{key}={quote(value)}" for key, value in query.items())
    with connected(server.data_url if on_data_port else server.url) as raw:
        reply = raw.request(method, target, body)
        assert reply.status < 500, (method, target, body, reply.body)


@fuzzed
@given(
    name=_NAMES, fields=st.dictionaries(st.sampled_from(_FIELDS), _JSON), id=st.just(_ID) | st.text(max_size=30)
)
def test_no_create_breaks_the_gateway(server: Gateway, name: str, fields: dict[str, Any], id: str) -> None:
    body = json.dumps({"envName": name, **fields}).encode()
    with connected(server.url) as raw:
        for method, target in (("POST", "/env-instance"), ("PUT", f"/env-instance/{quote(id, safe='')}")):
            reply = raw.request(method, target, body)
            assert 400 <= reply.status < 500, (method, target, body, reply.body)


@fuzzed
@given(
    headers=st.dictionaries(
        st.sampled_from(["AEnvCore-EnvInstance-ID", "AEnvCore-MCPProxy-URL", "authorization", "origin", "accept"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
    )
)
def test_no_header_breaks_the_data_port(server: Gateway, headers: dict[str, str]) -> None:
    with connected(server.data_url) as raw:
        reply = raw.request("POST", "/mcp", b"{}", tuple(headers.items()))
        assert 400 <= reply.status < 500, (headers, reply.body)
