"""Ray: episodes as actors and in datasets, and an environment of RLlib."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways import Gateway, running_gateway
from tests.integrations.conftest import LINE, Run


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path / "home", LINE) as running:
        yield running


@pytest.mark.timeout(600)
async def test_actors_and_datasets_play_tasks_and_rllib_trains_an_iteration(run: Run) -> None:
    # Ray's sockets lie below its folder, and a path of a socket is short.
    said = json.loads((await run("ray", "ray_rollouts.py", RAY_TMPDIR="/tmp")).splitlines()[-1])
    assert said["tasks"] == ["1-0", "1-1", "1-2", "1-3"]
    assert said["steps"] == [2, 2, 2, 2]
    assert set(said["rewards"]) <= {0.0, 1.0}
    assert said["mapped"] == [[f"1-{n}", said["rewards"][n], ""] for n in range(2)]
    assert said["rllib"] == {"steps": 64, "episodes": True}
