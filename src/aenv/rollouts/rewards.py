"""Rewards of instances: a number that can be believed, or why there is none."""

from __future__ import annotations

from ..base.errors import NotJudged
from ..base.outcomes import Reward, read_reward
from ..client.environment import Environment

__all__ = ["Reward", "of", "read_reward"]


async def of(env: Environment) -> Reward:
    """The default reward of an instance, as it stands now."""
    try:
        return read_reward(await env.call_reward({}))
    except NotJudged as error:
        return Reward(None, error.outcome, error.reason, error.details)
