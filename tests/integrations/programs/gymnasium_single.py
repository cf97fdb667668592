"""Gymnasium's own checker, and an episode whose answer is worked out with the calculator."""

import json
import warnings

import gymnasium
from gymnasium.utils.env_checker import check_env

import aenv.integrations.gymnasium  # noqa: F401 - registers aenv/…

warnings.simplefilter("error")


def call(tool: str, **arguments: str) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


env = gymnasium.make("aenv/gsm-tools@1.0.0")
check_env(env.unwrapped, skip_render_check=True)

problem, info = env.reset(seed=3, options={"task": "1-3"})
numbers = [word.strip(".,?") for word in problem.split() if word.strip(".,?").isdigit()]
worked_out = [env.step(call("calculate", expression=sign.join(numbers)))[0] for sign in "+-*/"]
rewards = []
for value in worked_out:
    env.reset(options={"task": "1-3"})
    _, reward, terminated, truncated, _ = env.step(call("submit_answer", answer=value))
    rewards.append(reward)
    assert (terminated, truncated) == (True, False)

env.reset(options={"task": "1-3"})
nonsense = env.step("what?")
unknown = env.step(call("fly"))
steps = 2
while not (last := env.step("what?"))[3]:
    steps += 1
env.close()
print(
    json.dumps(
        {
            "task": info["task"],
            "rewards": sorted(rewards),
            "nonsense": [nonsense[0], nonsense[4]["is_error"]],
            "unknown": [unknown[0], unknown[2]],
            "cut_after": steps + 1,
            "cut": [last[1], last[2]],
        }
    )
)
