"""A vector of instances: stepped together, and begun again in the step after the last."""

import json

import gymnasium
import numpy

import aenv.integrations.gymnasium

answer = json.dumps({"tool": "submit_answer", "arguments": {"answer": "12"}})
read = json.dumps({"tool": "read_problem"})

envs = gymnasium.make_vec(
    "aenv/gsm-tools@1.0.0", num_envs=3, vectorization_mode="vector_entry_point", split="train"
)
first, info = envs.reset(seed=5)
again, _ = envs.reset(seed=5)
assert first == again
assert envs.observation_space.contains(first)
seen = envs.step([read] * 3)[0]
ended = envs.step([answer, read, read])
begun = envs.step([answer] * 3)
after = envs.step([read] * 3)
envs.close()

custom = aenv.integrations.gymnasium.register("my-env@2.0.0")
print(
    json.dumps(
        {
            "tasks": [int(task.partition("-")[2]) < 1000 for task in info["task"]],
            "reads_the_same": list(seen) == list(first),
            "ended": ended[2].tolist(),
            "begun": [text.startswith("noted") for text in begun[0]],
            "begun_ended": begun[2].tolist(),
            "then_read": after[0][0] == begun[0][0],
            "rewards": numpy.unique(begun[1]).tolist()[0] in (0.0, 1.0),
            "custom": [custom, gymnasium.spec(custom).kwargs["env_name"]],
        }
    )
)
