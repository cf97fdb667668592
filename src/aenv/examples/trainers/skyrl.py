"""SkyRL's registry makes the environment, which plays episodes. To train with them, SkyRL wants a GPU."""

from aenv.examples.agents import framework
from aenv.examples.trainers import NAME, OPTIONS, call, expression

with framework("SkyRL", "skyrl-gym>=0.3"):
    import skyrl_gym


def main() -> None:
    skyrl_gym.register(id="aenv", entry_point="aenv.integrations.skyrl:AenvTextEnv")
    for task in ("1-0", "1-1", "1-2"):
        env = skyrl_gym.make("aenv", env_config=None, extras={"env_name": NAME, "task": task, **OPTIONS})
        conversation, _ = env.init([])
        work = expression(conversation[-1]["content"])
        told = env.step(said(call("calculate", expression=work)))
        result = told["observations"][0]["content"]
        last = env.step(said(call("submit_answer", answer=result)))
        print(f"task {task}: {work} = {result}, reward {last['reward']:g}, done {last['done']}")
        env.close()


def said(call: str) -> str:
    """What a model writes around its call."""
    return f"Let me see.<tool_call>{call}</tool_call>"


if __name__ == "__main__":
    main()
