"""SkyRL's own registry makes the environment; a text with a call in tags is played, and the reward comes last."""

import json

import skyrl_gym

skyrl_gym.register(id="aenv", entry_point="aenv.integrations.skyrl:AenvTextEnv")
extras = {"env_name": "gsm-tools@1.0.0", "final_tools": ["submit_answer"], "split": "train", "task": "1-0"}


def call(tool: str, **arguments: str) -> str:
    return f"Let me see.<tool_call>{json.dumps({'tool': tool, 'arguments': arguments})}</tool_call>"


def play(sign: str) -> tuple[float, bool]:
    env = skyrl_gym.make("aenv", env_config=None, extras=extras)
    conversation, info = env.init([])
    assert info == {"task": "1-0"}
    numbers = [word.strip(".,?") for word in conversation[-1]["content"].split() if word.strip(".,?").isdigit()]
    worked_out = env.step(call("calculate", expression=sign.join(numbers)))
    assert (worked_out["reward"], worked_out["done"]) == (0.0, False)
    last = env.step(call("submit_answer", answer=worked_out["observations"][0]["content"]))
    assert env.get_metrics() == {"reward": last["reward"], "turns": 2}
    env.close()
    return last["reward"], last["done"]


env = skyrl_gym.make("aenv", env_config=None, extras={**extras, "max_steps": 2})
roles = [message["role"] for message in env.init([])[0]]
chatter = env.step("I think it is twelve.")
end = env.step("Yes, twelve.")
env.close()
try:
    skyrl_gym.make("aenv", env_config=None, extras={})
    missing = ""
except ValueError as error:
    missing = str(error)
print(
    json.dumps(
        {
            "played": sorted(play(sign) for sign in "+-*/"),
            "roles": roles,
            "chatter": [chatter["done"], chatter["metadata"]["is_error"]],
            "end": [end["done"], end["reward"], end["observations"]],
            "missing": missing,
        }
    )
)
