"""SkyRL: a text environment of its own kind, made by its registry."""

from __future__ import annotations

import json

from tests.integrations.conftest import Run


async def test_an_episode_of_skyrl_ends_with_the_environments_reward(run: Run) -> None:
    assert json.loads(await run("skyrl", "skyrl_episode.py")) == {
        "played": [[0.0, True], [0.0, True], [0.0, True], [1.0, True]],
        "roles": ["system", "user"],
        "chatter": [False, True],
        "end": [True, 0.0, []],
        "missing": "extras must have env_name, such as 'gsm-tools@1.0.0'",
    }
