"""Ray: an environment of RLlib.

Not here: episodes in actors and datasets, which its example plays (`test_trainer_examples.py`).
"""

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
async def test_rllib_trains_an_iteration(run: Run) -> None:
    # Ray's sockets lie below its folder, and a path of a socket is short.
    said = json.loads((await run("ray", "ray_rllib.py", RAY_TMPDIR="/tmp")).splitlines()[-1])
    assert said == {"steps": 64, "episodes": True}
