"""AReaL's workflow and proxy server play episodes, and export what to learn from.

To train, AReaL wants a GPU. An agent of tau2 for its workflows is `aenv.examples.tau2_rl`.
"""

import asyncio
import os

from aenv.examples.agents import framework
from aenv.examples.trainers import NAME, OPTIONS

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or LiteLLM, which AReaL imports, asks the network
with framework("AReaL", "areal>=1.0.4"):
    from areal.experimental.openai.proxy.workflow import OpenAIProxyWorkflow
    from areal.infra import workflow_context

    from aenv.examples.trainers.areal_proxy import KEY, ScriptedEngine, served
    from aenv.integrations.areal import AenvAgent

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 512}


async def main() -> None:
    agent = AenvAgent(NAME, sampling=SAMPLING, **OPTIONS)
    workflow = OpenAIProxyWorkflow("inline", agent, await served(), KEY)
    workflow_context.set(workflow_context.WorkflowContext(task_id=7))
    for sign in "+-*/":
        ScriptedEngine.sign = sign
        turns = await workflow.arun_episode(None, {"task_id": "1-0"})
        learned = sum(int(turn.to_tensor_dict()["loss_mask"].sum()) for turn in turns.values())
        rewards = [turn.reward for turn in turns.values()]
        print(f"task 1-0 with {sign}: rewards of its turns {rewards}, {learned} tokens to learn from")


if __name__ == "__main__":
    asyncio.run(main())
