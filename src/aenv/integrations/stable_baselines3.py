"""Environments of aenv for Stable-Baselines3; needs `pip install 'stable-baselines3>=2.7'`.

    envs = AenvVecEnv("my-env@1.0.0", 8, codec=MyCodec(), in_place=True)
    PPO("MlpPolicy", envs).learn(10_000)

Its algorithms take numbers, not texts: a codec (see `gymnasium.py`) says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy
from stable_baselines3.common.vec_env import VecEnv

from aenv.integrations.gymnasium import Codec, Slot, options_of
from aenv.integrations.loop_thread import LOOP
from aenv.integrations.tool_episode import ToolEpisode


class AenvVecEnv(VecEnv):
    """Many instances of one environment; a step calls all of them at the same time.

    As Stable-Baselines3 has it, an episode that ends begins again in the same step, and what was seen last is in
    `info["terminal_observation"]`.
    """

    def __init__(self, env_name: str, num_envs: int, *, codec: Codec, **options: Any) -> None:
        self.codec = codec
        self._slots = [Slot(ToolEpisode(options_of(env_name, options))) for _ in range(num_envs)]
        self._actions: Any = None
        self.render_mode = None
        super().__init__(num_envs, codec.observation_space, codec.action_space)

    def reset(self) -> Any:
        for slot, seed in zip(self._slots, self._seeds, strict=True):
            if seed is not None:
                slot.random = numpy.random.default_rng(seed)
        self._reset_seeds()
        return numpy.stack(LOOP.run(_all(slot.begin_alone(self.codec) for slot in self._slots)))

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        done = LOOP.run(
            _all(self._next(slot, action) for slot, action in zip(self._slots, self._actions, strict=True))
        )
        observations, rewards, ended, infos = zip(*done, strict=True)
        return numpy.stack(observations), numpy.array(rewards, numpy.float32), numpy.array(ended), list(infos)

    async def _next(self, slot: Slot, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        made = await slot.step_alone(self.codec, action)
        if not made.is_done and not made.is_cut:
            return made.observation, made.reward, False, {}
        info = {"terminal_observation": made.observation, "TimeLimit.truncated": made.is_cut}
        info |= {"lost": True} if made.is_lost else {}
        return await slot.begin_alone(self.codec), made.reward, True, info

    def close(self) -> None:
        LOOP.run(_all(slot.episode.close() for slot in self._slots))

    # What Stable-Baselines3 asks of Gymnasium environments one by one; there are none here.

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"{attr_name!r} cannot be set: instances of aenv have no attributes")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"no method {method_name!r}: instances of aenv are called by their tools")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(self._chosen(indices))

    def _chosen(self, indices: Any) -> Sequence[int]:
        return list(self._get_indices(indices))


async def _all(works: Any) -> list[Any]:
    return list(await asyncio.gather(*works))
