"""WarmPools: how many spare instances are kept, for whom, and who may say so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aenv.base.config import load_project
from aenv.base.errors import Forbidden, InvalidRequest, NotFound, Unsupported
from aenv.base.models import CreateInstance
from aenv.control.gateway.parts import Parts
from aenv.control.instances.warm_pools import SPARE_BYTES
from aenv.control.serving.accounts import LOCAL, Role
from aenv.engines.base import InstanceSpec
from aenv.engines.process import ProcessEngine
from tests.gateways import Gateway, composed, listening, make_project

MEMORY = 100 * SPARE_BYTES


class WarmEngine(ProcessEngine):
    """An engine that only remembers what it was told to keep, and how often."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.kept: dict[tuple[str, str], int] = {}
        self.told: list[int] = []
        self.changed = asyncio.Condition()
        self.fails = False

    async def keep_warm(self, spec: InstanceSpec, count: int) -> None:
        assert (spec.id, dict(spec.environment_variables), spec.arguments) == ("spare", {}, ())
        if self.fails:
            raise OSError("no room")
        self.told.append(count)
        self.kept[spec.environment, str(spec.project)] = count
        async with self.changed:
            self.changed.notify_all()

    def warm(self) -> Mapping[str, int]:
        return {name: count for (name, _), count in self.kept.items()}

    async def until(self, **counts: int) -> None:
        """Return when so many are kept of each, by name."""
        wanted = {f"{name}@1.0.0": count for name, count in counts.items()}
        async with self.changed:
            await self.changed.wait_for(lambda: self.warm() == wanted)


class Warm:
    """A gateway whose engine keeps instances warm, and whose clock the test moves."""

    def __init__(self, made: Parts, engine: WarmEngine, now: list[float]) -> None:
        self.made = made
        self.engine = engine
        self._now = now

    async def later(self, seconds: float) -> None:
        self._now[0] += seconds
        await self.made.warm_pools.settle()

    def creates(self, project: Path, count: int, every: float = 0.0) -> None:
        """As `Creation` tells of them."""
        loaded = load_project(project)
        spec = InstanceSpec("an-id", str(loaded.ref), loaded.path, {"A": "b"}, ("x",))
        for _ in range(count):
            self.made.warm_pools.created(spec, loaded)
            self._now[0] += every


@contextlib.asynccontextmanager
async def warm_in(home: Path, *projects: Path, **settings: Any) -> AsyncIterator[Warm]:
    now = [1000.0]
    home.mkdir(exist_ok=True)
    engine = WarmEngine(home)
    given = {"warm_memory": MEMORY, **settings}
    async with composed(home, *projects, engine=engine, clock=lambda: now[0], **given) as made:
        yield Warm(made, engine, now)


# How many


async def test_environments_that_ask_for_it_are_warm_from_the_start(tmp_path: Path) -> None:
    asks, other = make_project(tmp_path, warmPool=3), make_project(tmp_path, "other")
    async with warm_in(tmp_path / "home", asks, other) as warm:
        await warm.engine.until(echo=3)


async def test_a_burst_is_expected_again_and_less_so_as_time_goes_by(tmp_path: Path) -> None:
    project = make_project(tmp_path, warmPool=2)
    async with warm_in(tmp_path / "home", project) as warm:
        await warm.engine.until(echo=2)
        warm.creates(project, 16)
        await warm.engine.until(echo=16)
        await warm.later(30)
        assert warm.engine.warm() == {"echo@1.0.0": 8}
        await warm.later(60)
        assert warm.engine.warm() == {"echo@1.0.0": 2}
        await warm.later(3600)
        assert warm.engine.warm() == {"echo@1.0.0": 2}


async def test_a_steady_rate_keeps_as_many_as_come_together(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    async with warm_in(tmp_path / "home", project) as warm:
        warm.creates(project, 200, every=0.0201)
        await warm.later(0)
        assert warm.engine.warm() == {"echo@1.0.0": 5}


async def test_one_create_now_and_then_keeps_nothing_warm(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    async with warm_in(tmp_path / "home", project) as warm:
        warm.creates(project, 20, every=5.0)
        await warm.later(0)
        assert warm.engine.told == []


async def test_the_engine_is_told_only_what_changes(tmp_path: Path) -> None:
    project = make_project(tmp_path, warmPool=3)
    async with warm_in(tmp_path / "home", project) as warm:
        await warm.engine.until(echo=3)
        warm.creates(project, 2)
        for _ in range(5):
            await warm.later(1)
        assert warm.engine.told == [3]


@pytest.mark.slow
async def test_creates_count(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    async with warm_in(tmp_path / "home", project) as warm:
        plain = CreateInstance(env_name="echo", environment_variables={"A": "b"}, arguments=["x"])
        narrowed = CreateInstance(env_name="echo", resources={"cpu": "1"})
        await asyncio.gather(*(warm.made.creator.create(plain, LOCAL) for _ in range(3)))
        await warm.engine.until(echo=3)
        await asyncio.gather(*(warm.made.creator.create(narrowed, LOCAL) for _ in range(3)))
        await warm.later(0)
        assert warm.engine.warm() == {"echo@1.0.0": 3}  # no spare one is like those


async def test_memory_bounds_them_all_and_what_was_asked_for_comes_first(tmp_path: Path) -> None:
    asks, busy = make_project(tmp_path, warmPool=60), make_project(tmp_path, "busy")
    async with warm_in(tmp_path / "home", asks, busy) as warm:
        await warm.engine.until(echo=60)
        warm.creates(busy, 80)
        await warm.engine.until(echo=60, busy=40)
        await warm.made.warm_pools.ask(load_project(asks), 90)
        await warm.engine.until(echo=90, busy=10)


async def test_without_memory_for_them_there_are_none(tmp_path: Path) -> None:
    project = make_project(tmp_path, warmPool=3)
    async with warm_in(tmp_path / "home", project, warm_memory=0) as warm:
        warm.creates(project, 16)
        await warm.later(0)
        assert warm.engine.told == []


async def test_code_that_has_changed_gets_new_ones_and_the_old_ones_go(tmp_path: Path) -> None:
    old, new = make_project(tmp_path / "a"), make_project(tmp_path / "b")
    async with warm_in(tmp_path / "home", old) as warm:
        assert await warm.made.warm_pools.ask(load_project(old), 4) == (4, 4)
        warm.creates(new, 1)
        await warm.later(0)
        assert warm.engine.kept == {("echo@1.0.0", str(old)): 0, ("echo@1.0.0", str(new)): 4}


async def test_an_engine_that_fails_to_keep_them_ends_nothing(tmp_path: Path) -> None:
    project = make_project(tmp_path, warmPool=3)
    async with warm_in(tmp_path / "home", project) as warm:
        await warm.engine.until(echo=3)
        warm.engine.fails = True
        warm.creates(project, 16)
        await warm.later(0)
        warm.engine.fails = False
        await warm.later(3600)
        assert warm.engine.warm() == {"echo@1.0.0": 3}


async def test_an_environment_that_cannot_be_prepared_is_left_cold(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = make_project(tmp_path, "bad", network="full", warmPool=1), make_project(tmp_path, warmPool=2)
    async with warm_in(tmp_path / "home", bad, good, allow_network="none") as warm:
        await warm.engine.until(echo=2)
        assert "bad@1.0.0 is not kept warm" in caplog.text


async def test_a_gateway_that_stops_lets_them_go(tmp_path: Path) -> None:
    async with warm_in(tmp_path / "home", make_project(tmp_path, warmPool=3)) as warm:
        await warm.engine.until(echo=3)
    assert warm.engine.warm() == {"echo@1.0.0": 0}


# Who may say so


async def ask(gateway: Gateway, ref: str, body: Any, token: str = "") -> tuple[int, Any]:
    headers = [("authorization", f"Bearer {token}")] if token else []
    return await gateway.ask("PUT", f"/env/{ref.replace('@', '/')}/warm", body, headers)


async def test_the_route_keeps_so_many_and_says_what_is_ready(tmp_path: Path) -> None:
    async with warm_in(tmp_path / "home", make_project(tmp_path)) as warm, listening(warm.made) as gateway:
        status, reply = await ask(gateway, "echo@latest", {"count": 5})
        assert (status, reply["data"]) == (
            200,
            {"environment": "echo@1.0.0", "count": 5, "kept": 5, "ready": 5},
        )
        assert (await ask(gateway, "echo@1.0.0", {"count": 500}))[1]["data"]["kept"] == 100
        assert (await ask(gateway, "echo@1.0.0", {"count": 0}))[1]["data"]["ready"] == 0
        for body in ({}, {"count": -1}, {"count": "many"}, {"count": 10_001}):
            assert (await ask(gateway, "echo@1.0.0", body))[0] == InvalidRequest.status
        assert (await ask(gateway, "none@1.0.0", {"count": 1}))[0] == NotFound.status


async def test_only_the_owner_and_administrators_may(tmp_path: Path) -> None:
    async with warm_in(tmp_path / "home", make_project(tmp_path)) as warm, listening(warm.made) as gateway:
        accounts = warm.made.shared.accounts
        _, admin = await accounts.create("root", Role.ADMIN)
        _, ada = await accounts.create("ada")
        _, bob = await accounts.create("bob")
        body = {"name": "mine", "version": "1.0.0"}
        pushed = await gateway.ask("POST", "/env", body, [("authorization", f"Bearer {ada}")])
        assert pushed[0] == 200, pushed
        assert (await ask(gateway, "echo@1.0.0", {"count": 1}, admin))[0] == 200
        assert (await ask(gateway, "echo@1.0.0", {"count": 1}, ada))[0] == Forbidden.status
        assert (await ask(gateway, "mine@1.0.0", {"count": 1}, bob))[0] == Forbidden.status
        status, reply = await ask(gateway, "mine@1.0.0", {"count": 1}, ada)
        assert (status, reply["message"].endswith("it has no code yet; use 'aenv push'")) == (404, True)


async def test_an_engine_that_keeps_nothing_warm_says_so(tmp_path: Path) -> None:
    async with composed(tmp_path / "home", make_project(tmp_path)) as made, listening(made) as gateway:
        status, reply = await ask(gateway, "echo@1.0.0", {"count": 1})
        assert (status, reply["message"]) == (Unsupported.status, "the process engine keeps no instances warm")
