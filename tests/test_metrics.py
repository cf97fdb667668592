"""What a gateway counts and logs: the published names, bounded labels, traces that can be followed."""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import pytest

from aenv.base import logs
from aenv.base.addresses import Origin
from aenv.control.serving.accounts import Accounts, Role
from aenv.control.serving.metrics import Metrics
from aenv.control.stores.sqlite import SqliteStore
from tests.command_line import aenv, serving
from tests.gateways import Gateway, make_project, running_gateway

pytestmark = pytest.mark.slow  # gateways and commands are started

PUBLISHED = (
    "aenv_api_requests_total",
    "aenv_api_request_duration_ms",
    "aenv_api_instance_operations_total",
    "aenv_api_service_operations_total",
    "aenv_api_active_instances",
    "aenv_api_mcp_requests_total",
    "aenv_api_mcp_request_duration_ms",
    "auto_cleanup_success_total",
    "auto_cleanup_failure_total",
)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", make_project(tmp_path)) as gateway:
        yield gateway


async def counted(gateway: Gateway) -> dict[str, float]:
    response = await gateway.pool.request(gateway.control, "GET", "/metrics")
    text = (await response.read()).decode()
    assert (response.status, (response.header(b"content-type") or "")[:10]) == (200, "text/plain")
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_metrics_have_the_published_names(gateway: Gateway) -> None:
    response = await gateway.pool.request(gateway.control, "GET", "/metrics")
    text = (await response.read()).decode()
    for name in PUBLISHED:
        assert f"# TYPE {name} " in text


async def test_a_walk_is_counted_with_the_stages_of_its_create(gateway: Gateway) -> None:
    instance = await gateway.create(labels={"experiment": "a"})
    await gateway.call(instance["id"], "echo", text="hi")
    during = await counted(gateway)
    assert during['aenv_api_active_instances{envName="echo",experiment="a"}'] == 1
    assert during['aenv_api_requests_total{endpoint="/env-instance",method="POST",status="200"}'] == 1
    assert during['aenv_api_instance_operations_total{env_name="echo",operation="create",status="success"}'] == 1
    assert during['aenv_api_mcp_requests_total{endpoint="/other",method="POST",rpc_method="",status="200"}'] == 1
    for stage in ("find", "admit", "prepare", "engine"):
        assert during[f'aenv_instance_create_stage_seconds_count{{stage="{stage}"}}'] == 1
    assert during["aenv_instance_create_seconds_count"] == 1
    assert (
        during["aenv_instance_create_seconds_sum"]
        >= during['aenv_instance_create_stage_seconds_sum{stage="engine"}']
    )
    await gateway.ask("DELETE", f"/env-instance/{instance['id']}")
    after = await counted(gateway)
    assert after['aenv_api_active_instances{envName="echo",experiment="a"}'] == 0


async def test_an_expiry_is_counted(gateway: Gateway) -> None:
    instance = await gateway.create(ttl="300ms")
    # A call that never returns by itself: it breaks off when the instance ends.
    await gateway.ask("POST", f"/instances/{instance['id']}/tools/hang", {}, origin=gateway.data)
    assert (await counted(gateway))["auto_cleanup_success_total"] == 1


async def test_ids_and_made_up_paths_never_become_labels(gateway: Gateway) -> None:
    instance = await gateway.create()
    for target in (f"/env-instance/{instance['id']}", "/made-up", "/env-instance/made-up"):
        await gateway.ask("GET", target)
    await gateway.ask("GET", f"/instances/{instance['id']}/made-up", origin=gateway.data)
    headers = [("mcp-method", "made-up")]
    await gateway.ask("POST", f"/instances/{instance['id']}/mcp", b"{}", headers, origin=gateway.data)
    names = " ".join(await counted(gateway))
    assert instance["id"] not in names
    assert "made-up" not in names


async def status_of(gateway: Gateway, origin: Origin, token: str = "") -> int:
    headers = [("authorization", f"Bearer {token}")] if token else []
    response = await gateway.pool.request(origin, "GET", "/metrics", headers)
    await response.read()
    return response.status


async def test_beyond_this_machine_metrics_take_a_token_of_any_role_or_an_address_of_their_own(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with SqliteStore(home / "aenv.db") as store:
        _, token = await Accounts(store).create("looker", Role.VIEWER)
    async with running_gateway(home, host="0.0.0.0", metrics_address=("127.0.0.1", 0)) as gateway:
        control = Origin("127.0.0.1", gateway.address.port)
        assert await status_of(gateway, control) == 401
        assert await status_of(gateway, control, "nonsense") == 401
        assert await status_of(gateway, control, token) == 200
        assert gateway.address.metrics
        metrics = Origin(*gateway.address.metrics)
        assert await status_of(gateway, metrics) == 200
        for target in ("/env", "/token", "/health", "/instances/x/mcp"):
            assert (await gateway.ask("GET", target, origin=metrics))[0] == 404
    async with running_gateway(home) as gateway:
        assert await status_of(gateway, gateway.control) == 200


async def test_without_accounts_metrics_of_an_insecure_gateway_take_no_token(tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "home", host="0.0.0.0", insecure=True) as gateway:
        assert await status_of(gateway, Origin("127.0.0.1", gateway.address.port)) == 200


@pytest.mark.parametrize("value", ["nowhere", "127.0.0.1:", "::1:9100", "host:99999"])
def test_a_metrics_address_that_is_none_is_refused(value: str) -> None:
    for command in ("serve", "hub"):
        done = aenv(command, "--metrics-address", value)
        assert done.returncode == 2
        said = " ".join(done.stderr.split())
        assert f"must be HOST:PORT, as in 127.0.0.1:9100, got {value!r}" in said


def test_serve_says_where_metrics_are(tmp_path: Path) -> None:
    options = ("--port", "0", "--data-port", "0", "--home", tmp_path / "home", "--metrics-address", ":0")
    with serving("serve", *options) as server:
        said = server.until("metrics", on="stderr")[-1]
        url = said.removeprefix("metrics").strip()
        with urllib.request.urlopen(url) as reply:
            assert b"aenv_api_requests_total" in reply.read()


def test_the_names_of_environments_are_bounded() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.did("create", f"environment-{number}")
    names = set(re.findall(r'env_name="([^"]+)"', metrics.text().decode()))
    assert len(names) == 201
    assert "other" in names


def test_a_log_of_json_has_a_line_for_each_event_with_its_ids() -> None:
    before = logging.getLogger("aenv").handlers[:]
    stream = StringIO()
    try:
        logs.configure("INFO", stream, as_json=True)
        logs.instance_id.set("echo-1")
        logs.request_id.set("4bf92f3577b34da6a3ce929d0e0e4736")
        logging.getLogger("aenv.test").info("instance of %s ready", "echo@1.0.0")
    finally:
        logs.instance_id.set(None)
        logs.request_id.set(None)
        logs.setup_logging(before[0] if before else None)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"]) == ("INFO", "instance of echo@1.0.0 ready")
    assert (line["instance"], line["trace"]) == ("echo-1", "4bf92f3577b34da6a3ce929d0e0e4736")
