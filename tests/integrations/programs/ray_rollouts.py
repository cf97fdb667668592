"""Episodes in Ray's actors and datasets, and an iteration of RLlib's PPO."""

import json
import os
from typing import Any

import ray

from aenv.integrations.ray import TaskPlayer, play_tasks, register_rllib
from aenv.integrations.tool_episode import ToolEpisode

NAME = "gsm-tools@1.0.0"
OPTIONS = {
    "final_tools": ("submit_answer",),
    "split": "train",
    "variables": {"GSM_DIFFICULTY": "1", "GSM_COUNT": "4"},
}


async def agent(episode: ToolEpisode) -> None:
    """Adds up what it is told."""
    assert episode.briefing
    numbers = [word.strip(".,?") for word in episode.briefing.instruction.split() if word.strip(".,?").isdigit()]
    seen = await episode.call("calculate", {"expression": " + ".join(numbers)})
    await episode.call("submit_answer", {"answer": seen.text})


def rllib() -> dict[str, Any]:
    from ray.rllib.algorithms.ppo import PPOConfig

    from aenv.examples.trainers.line_cells import Cells

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
    return {"steps": int(result["num_env_steps_sampled"]), "episodes": result["num_episodes"] > 0}


kept = {name: os.environ[name] for name in ("AENV_SYSTEM_URL", "PYTHONPATH", "HOME")}
ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    runtime_env={"env_vars": kept},
    object_store_memory=10**8,
)
played = play_tasks(NAME, agent, actors=2, **OPTIONS)
rows = ray.data.from_items([{"task": "1-0"}, {"task": "1-1"}])
mapped = rows.map(TaskPlayer, fn_constructor_args=(NAME, agent, OPTIONS), concurrency=1).take_all()
print(
    json.dumps(
        {
            "tasks": [one.task for one in played],
            "rewards": [one.reward for one in played],
            "steps": [one.steps for one in played],
            "mapped": sorted([row["task"], row["reward"], row["error"]] for row in mapped),
            "rllib": rllib(),
        }
    )
)
ray.shutdown()
