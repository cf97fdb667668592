"""PPO of Stable-Baselines3 learns to walk to a goal, in eight instances of the environment in `line/`."""

import asyncio

from aenv.examples.agents import framework
from aenv.examples.trainers import LINE, line_gateway

with framework("Stable-Baselines3", "stable-baselines3>=2.7"):
    import numpy
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    from aenv.examples.trainers.line_cells import Cells
    from aenv.integrations.stable_baselines3 import AenvVecEnv


def learn(url: str) -> None:
    torch.set_num_threads(1)  # the instances have the other cores
    envs = AenvVecEnv(LINE, 8, codec=Cells(), in_place=True, aenv_url=url)
    envs.seed(0)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=128, n_epochs=8, learning_rate=3e-3, gamma=0.9, seed=0)
    print("before:", evaluated(model, envs), flush=True)
    model.learn(4096)
    print("after: ", evaluated(model, envs))
    envs.close()


def evaluated(model: PPO, envs: AenvVecEnv) -> str:
    envs.seed(7)
    rewards, _ = evaluate_policy(model, envs, 80, deterministic=False, return_episode_rewards=True, warn=False)
    error = numpy.std(rewards, ddof=1) / len(rewards) ** 0.5
    return f"mean reward {numpy.mean(rewards):.3f} ± {error:.3f} in {len(rewards)} episodes"


async def main() -> None:
    async with line_gateway() as url:
        await asyncio.to_thread(learn, url)


if __name__ == "__main__":
    asyncio.run(main())
