"""Whether requests should come to a gateway now (`/ready`), apart from whether it lives (`/health`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aenv.base import settings
from aenv.base.http1 import Pool
from aenv.control.gateway import gateway_app
from aenv.control.gateway import home as homes
from aenv.control.gateway.parts import parts, shared
from aenv.control.instances.catalog import read_folders
from tests.gateways import Gateway, gateway_settings, listening, make_project, running_gateway
from tests.redis_server import redis_server


async def readiness(gateway: Gateway) -> tuple[int, int]:
    """What the control port and the data port say; both say the same kind of thing."""
    found = []
    for origin in (gateway.control, gateway.data):
        assert (await gateway.ask("GET", "/health", origin=origin))[0] == 200
        response = await gateway.pool.request(origin, "GET", "/ready")
        await response.read()
        assert (response.status == 503) == (response.header(b"retry-after") is not None)
        found.append(response.status)
    return found[0], found[1]


async def test_a_gateway_is_ready_from_when_it_has_taken_over_what_runs_until_it_stops(
    tmp_path: Path,
) -> None:
    home, project = tmp_path / "home", make_project(tmp_path)
    known = gateway_settings(home, project)
    async with (
        shared(known, read_folders([project], home)) as base,
        homes.opened(home) as own,
        parts(known, base, own) as made,
        listening(made) as gateway,
    ):
        assert await readiness(gateway) == (503, 503)
        running = asyncio.create_task(made.run())
        await made.begun()
        assert await readiness(gateway) == (200, 200)
        running.cancel()
        await made.close()
        assert await readiness(gateway) == (503, 503)
        assert "stopping" in (await gateway.ask("GET", "/ready"))[1]["message"]
        await asyncio.wait({running})


async def test_services_are_unavailable_and_not_missing_while_a_gateway_starts(tmp_path: Path) -> None:
    home, project = tmp_path / "home", make_project(tmp_path)
    async with running_gateway(home, project) as gateway:
        body = {"envName": "echo", "service_name": "steady"}
        assert (await gateway.ask("POST", "/env-service", body))[0] == 200
    known = gateway_settings(home, project)
    async with (
        shared(known, read_folders([project], home)) as base,
        homes.opened(home) as own,
        parts(known, base, own) as made,
        listening(made) as gateway,
    ):
        for name in ("steady", "unknown"):  # which one it knows, it cannot say yet
            status, reply = await gateway.ask("GET", f"/services/{name}/health", origin=gateway.data)
            assert (status, reply["error"]) == (503, "unavailable")
        status, reply = await gateway.ask("POST", "/env-service", {"envName": "echo"})
        assert (status, reply["error"]) == (503, "unavailable")
        running = asyncio.create_task(made.run())
        await made.begun()
        assert (await gateway.ask("GET", "/services/unknown/health", origin=gateway.data))[0] == 404
        assert (await gateway.ask("GET", "/services/steady/health", origin=gateway.data))[0] in (200, 503)
        running.cancel()
        await made.close()
        await asyncio.wait({running})


@pytest.mark.slow  # redis-server is stopped and started
async def test_a_gateway_whose_store_does_not_answer_lives_and_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as server:
        async with running_gateway(tmp_path / "home", store=server.url) as gateway:
            assert await readiness(gateway) == (200, 200)
            await asyncio.to_thread(server.kill)
            assert await readiness(gateway) == (503, 503)
            await asyncio.to_thread(server.start)
            assert await readiness(gateway) == (200, 200)


async def test_a_hub_alone_is_ready_when_its_store_answers(tmp_path: Path) -> None:
    ready: asyncio.Future[gateway_app.GatewayAddress] = asyncio.get_running_loop().create_future()
    known = settings.GatewaySettings(port=0, home=tmp_path / "home")
    serving = asyncio.create_task(gateway_app.serve_hub(known, ready.set_result))
    try:
        async with Pool() as pool:
            hub = Gateway(await ready, pool, known.home)
            assert (await hub.ask("GET", "/ready"))[0] == 200
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
