"""An iteration of RLlib's PPO."""

import json
import os

import ray
from ray.rllib.algorithms.ppo import PPOConfig

from aenv.examples.trainers.line_cells import Cells
from aenv.integrations.ray import register_rllib

kept = {name: os.environ[name] for name in ("AENV_SYSTEM_URL", "PYTHONPATH", "HOME")}
ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    runtime_env={"env_vars": kept},
    object_store_memory=10**8,
)
name = register_rllib("line@1.0.0", codec=Cells(), in_place=True)
config = (
    PPOConfig()
    .environment(name)
    .env_runners(num_env_runners=0, rollout_fragment_length=64)
    .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    .debugging(seed=0)
)
algorithm = config.build_algo()
result = algorithm.train()["env_runners"]
algorithm.stop()
print(json.dumps({"steps": int(result["num_env_steps_sampled"]), "episodes": result["num_episodes"] > 0}))
ray.shutdown()
