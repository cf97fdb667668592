"""verl's own loop of tool calls plays episodes. A script stands for its model server.

To train, verl wants a GPU.
"""

import asyncio
import sys
from contextlib import redirect_stdout
from typing import Any

from aenv.examples.agents import framework
from aenv.examples.trainers import FINAL_TOOLS, NAME

with framework("verl", "verl>=0.9", "torch", "cachetools", "fastapi", "uvicorn"):
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.rollout.replica import TokenOutput

    from aenv.examples.trainers.scripted_model import answer, tokenizer
    from aenv.integrations.verl import AenvAgentLoop

    TOKENS = tokenizer()

TURNS = {
    "max_user_turns": None,
    "max_assistant_turns": 5,
    "max_parallel_calls": 1,
    "max_tool_response_length": 256,
    "tool_response_truncate_side": "middle",
    "format": "hermes",
}
ROLLOUT = {"prompt_length": 2048, "response_length": 512, "full_determinism": False, "multi_turn": TURNS}


class ScriptedServer:
    """In place of vLLM or SGLang."""

    def __init__(self, sign: str) -> None:
        self.sign = sign
        self.asked = 0

    async def generate(self, *, prompt_ids: list[int], **options: Any) -> TokenOutput:
        self.asked += 1
        said = TOKENS(answer(TOKENS.decode(prompt_ids), self.sign))["input_ids"]
        return TokenOutput(token_ids=said, log_probs=[-0.5] * len(said))


async def looped(server: ScriptedServer) -> AgentLoopOutput:
    """A sample of one episode, as verl's trainer gets it."""
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": ROLLOUT}, "data": {}})
    loop = AenvAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=TOKENS,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        env_name=NAME,
        final_tools=FINAL_TOOLS,
        split="train",
    )
    return await loop.run({"temperature": 1.0}, raw_prompt=[], extra_info={"task": "1-0"})


async def main() -> None:
    for sign in "+-*/":
        with redirect_stdout(sys.stderr):  # verl prints the schemas of all tools
            sample = await looped(ScriptedServer(sign))
        told = f"{len(sample.response_ids)} tokens, {sum(sample.response_mask)} to learn from"
        print(f"task 1-0 with {sign}: reward {sample.reward_score:g}; {told}")


if __name__ == "__main__":
    asyncio.run(main())
