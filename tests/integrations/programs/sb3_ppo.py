"""PPO learns to walk to a goal; the rewards are the environment's."""

import json

import torch
from line_cells import Cells  # beside this program
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy

from aenv.integrations.gymnasium import AenvGym
from aenv.integrations.stable_baselines3 import AenvVecEnv

torch.set_num_threads(1)  # the instances have the other cores
NAME = "line@1.0.0"


single = AenvGym(NAME, codec=Cells(), in_place=True)
check_env(single)
single.close()

envs = AenvVecEnv(NAME, 8, codec=Cells(), in_place=True)
envs.seed(0)
model = PPO("MlpPolicy", envs, n_steps=64, batch_size=128, n_epochs=8, learning_rate=3e-3, gamma=0.9, seed=0)
untrained = AenvVecEnv(NAME, 8, codec=Cells(), in_place=True)
untrained.seed(7)
before, _ = evaluate_policy(model, untrained, n_eval_episodes=80, deterministic=False, return_episode_rewards=True)
model.learn(4096)
untrained.seed(7)
after, _ = evaluate_policy(model, untrained, n_eval_episodes=80, deterministic=False, return_episode_rewards=True)
envs.close()
untrained.close()
print(json.dumps({"before": before, "after": after}))
