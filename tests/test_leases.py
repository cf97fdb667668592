"""Leases as a gateway keeps them: what they hold, when they end, and what is believed of their clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from aenv.base.models import CreateInstance
from aenv.control.serving.accounts import LOCAL, Role
from tests.gateways import composed, listening, make_project, new_id
from tests.lease_clients import lease_client, relayed
from tests.test_freezing import Clock, Frost, frost_in

CALL = "POST /mcp tools/call 200"


def row(*counts: int, total_ms: object = 0.0, status: object = 200, endpoint: str = "/mcp") -> list[object]:
    return ["POST", endpoint, "tools/call", status, list(counts), total_ms]


@pytest.mark.slow
async def test_a_leased_instance_is_not_frozen_and_one_that_was_let_go_of_is(tmp_path: Path) -> None:
    frost: Frost
    async with frost_in(tmp_path) as frost, lease_client(frost.gateway.control) as client:
        granted = await client.take(frost.id)
        assert granted.grant
        assert (granted.what, granted.grant.quiet, granted.grant.rewards) == ("granted", 5.0, True)
        frost.pass_by(3600)
        assert (await frost.ask())["frozen"] is False
        await client.drop(frost.id)
        await frost.freeze()
        assert (await client.take(frost.id)).what == "granted"
        await frost.engine.until("thaw")  # before the lease was given


@pytest.mark.slow
async def test_the_leases_of_a_connection_end_with_it(tmp_path: Path) -> None:
    async with frost_in(tmp_path) as frost:
        async with lease_client(frost.gateway.control) as client:
            await client.take(frost.id)
            frost.pass_by(3600)
            assert frost.made.supervisor[frost.id].calls == 1
        while frost.made.supervisor[frost.id].calls:
            await frost.ask()  # the gateway goes on, and hears of the end
        await frost.freeze()


async def test_a_leased_instance_is_not_idle_and_its_time_to_live_still_ends_it(tmp_path: Path) -> None:
    clock = Clock()
    async with (
        composed(tmp_path / "home", make_project(tmp_path), clock=clock) as made,
        listening(made) as gateway,
    ):
        request = CreateInstance(env_name="echo", idle_timeout="4s", ttl="2h")
        id = (await made.creator.create(request, LOCAL)).id
        instance = made.supervisor[id]
        async with lease_client(gateway.control) as client:
            granted = await client.take(id)
            assert granted.grant
            assert granted.grant.quiet == 2.0
            clock.now += 3600
            made.supervisor.check(id)
            assert instance.is_live
            clock.now += 3601
            made.supervisor.check(id)
            await instance.ended.wait()
            client.say("why", id)
            assert "time to live" in (await client.hear()).reason


async def test_one_that_is_not_used_after_its_lease_ends_idle(tmp_path: Path) -> None:
    clock = Clock()
    async with (
        composed(tmp_path / "home", make_project(tmp_path), clock=clock) as made,
        listening(made) as gateway,
    ):
        id = (await made.creator.create(CreateInstance(env_name="echo", idle_timeout="4s"), LOCAL)).id
        instance = made.supervisor[id]
        async with lease_client(gateway.control) as client:
            await client.take(id)
            clock.now += 60
            await client.drop(id)
            clock.now += 3.9
            made.supervisor.check(id)
            assert instance.is_live
            clock.now += 0.2
            made.supervisor.check(id)
            await instance.ended.wait()
            assert instance.record.reason == "it was not used for 4 s"


async def test_what_a_client_says_of_its_calls_is_counted_as_far_as_it_can_be_true(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        id = (await made.creator.create(CreateInstance(env_name="echo"), LOCAL)).id
        lies: list[object] = [
            "many",
            [row(1)] * 100,
            [row(10**12)],
            [row(-1)],
            [row(1, status=99)],
            [row(1, status=True)],
            [row(1, endpoint="/secret")],
            [["PATCH", "/mcp", "", 200, [1], 1.0]],
            [["POST", "/mcp", "evil", 200, [1], 1.0]],
            [row(*[0] * 19, 1)],  # five minutes, under a lease of some milliseconds
            [row(*[0] * 30)],
            [row("1")],  # type: ignore[arg-type]
            [[]],
        ]
        async with lease_client(gateway.control) as client:
            for lie in lies:
                await client.take(id)
                await client.drop(id, lie)
                assert await relayed(gateway) == {}, lie
            await client.take(id)
            await client.drop(id, [row(3, total_ms=1e300)])
            await client.drop(id, [row(3)])  # not held any more
        assert await relayed(gateway) == {CALL: 3.0}
        response = await gateway.pool.request(gateway.control, "GET", "/metrics")
        text = (await response.read()).decode()
        total = next(line for line in text.splitlines() if line.startswith("aenv_api_mcp_request_duration_ms_sum"))
        assert float(total.split()[-1]) <= 3.0  # three calls of at most a millisecond
        assert 'aenv_api_mcp_request_duration_ms_bucket{endpoint="/mcp",le="1.0",method="POST"} 3.0' in text


async def test_an_instance_of_another_owner_is_not_leased(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        ann, _ = await made.shared.accounts.create("ann", Role.USER)
        _, token = await made.shared.accounts.create("bob", Role.USER)
        id = (await made.creator.create(CreateInstance(env_name="echo"), ann.caller())).id
        async with lease_client(gateway.control, [("authorization", f"Bearer {token}")]) as client:
            assert (await client.take(id)).what == "refused"
            assert (await client.take("echo-none")).what == "refused"
        assert made.supervisor[id].calls == 0


async def test_a_create_that_names_the_request_of_its_client_comes_with_a_lease(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        _, ann = await made.shared.accounts.create("ann", Role.USER)
        _, bob = await made.shared.accounts.create("bob", Role.USER)
        headers = [("authorization", f"Bearer {ann}")]
        async with lease_client(gateway.control, headers) as client:

            async def create(id: str, token: str, key: str) -> object:
                sent = [("authorization", f"Bearer {token}"), ("aenvcore-leases", key)]
                status, reply = await gateway.ask("PUT", f"/env-instance/{id}", {"envName": "echo"}, sent)
                assert status == 200, reply
                return reply["data"]["lease"]

            one, two, three = (new_id() for _ in range(3))
            assert client.key
            lease = {"quiet": 5.0, "rewards": True, "max_body_bytes": made.settings.max_body_bytes}
            assert await create(one, ann, client.key) == lease
            assert await create(one, ann, client.key) == lease  # its first answer may have been lost
            assert made.supervisor[one].calls == 1
            assert await create(two, bob, client.key) is None
            assert await create(three, ann, "guessed") is None
            assert made.supervisor[two].calls == made.supervisor[three].calls == 0
            await client.drop(one)
            assert made.supervisor[one].calls == 0


@pytest.mark.parametrize("line", [b"{}\n", b"nonsense\n", b'{"what": "steal", "id": "x"}\n', b"x" * 100_000])
async def test_lines_that_are_none_end_the_request_and_the_gateway_goes_on(tmp_path: Path, line: bytes) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        async with lease_client(gateway.control) as client:
            client._body.send(line)
            with pytest.raises(StopAsyncIteration):
                await client.hear()
        assert (await gateway.ask("GET", "/health"))[0] == 200
