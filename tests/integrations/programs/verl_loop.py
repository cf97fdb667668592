"""verl's own loop of tool calls, in a real instance; a script stands for the server of the model."""

import asyncio
import json
import re
from enum import Enum
from typing import Any

from omegaconf import OmegaConf
from pydantic import BaseModel, TypeAdapter
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput

from aenv.examples.trainers.scripted_model import tokenizer
from aenv.integrations.verl import AenvAgentLoop, AenvTool, _flat

NAME = "gsm-tools@1.0.0"
TOKENS = tokenizer()


class Server:
    """Calculates with the numbers that it reads, and submits the result."""

    def __init__(self, sign: str) -> None:
        self.sign = sign
        self.asked = 0

    async def generate(self, *, prompt_ids: list[int], **options: Any) -> TokenOutput:
        self.asked += 1
        text = TOKENS.decode(prompt_ids)
        if "<|im_start|>tool" in text:
            result = text.rpartition("<|im_start|>tool\n")[2].partition("<|im_end|>")[0]
            call = {"name": "submit_answer", "arguments": {"answer": result}}
        else:
            numbers = re.findall(r"\d+", text.rpartition("<|im_start|>user")[2])
            call = {"name": "calculate", "arguments": {"expression": self.sign.join(numbers)}}
        said = TOKENS(f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>")["input_ids"]
        return TokenOutput(token_ids=said, log_probs=[-0.5] * len(said))


CONFIG = OmegaConf.create(
    {
        "actor_rollout_ref": {
            "rollout": {
                "prompt_length": 2048,
                "response_length": 512,
                "full_determinism": False,
                "multi_turn": {
                    "max_user_turns": None,
                    "max_assistant_turns": 5,
                    "max_parallel_calls": 1,
                    "max_tool_response_length": 256,
                    "tool_response_truncate_side": "middle",
                    "format": "hermes",
                },
            }
        },
        "data": {},
    }
)


async def looped(sign: str) -> dict[str, Any]:
    server = Server(sign)
    loop = AenvAgentLoop(
        trainer_config=DictConfigWrap(CONFIG),
        server_manager=server,
        tokenizer=TOKENS,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(CONFIG.data),
        env_name=NAME,
        final_tools=["submit_answer"],
        split="train",
    )
    output = await loop.run({"temperature": 1.0}, raw_prompt=[], extra_info={"task": "1-0"})
    marked = list(zip(output.response_ids, output.response_mask, strict=True))
    said = TOKENS.decode([token for token, is_own in marked if is_own])
    heard = TOKENS.decode([token for token, is_own in marked if not is_own])
    return {
        "reward": output.reward_score,
        "asked": server.asked,
        "calls": said.count("<tool_call>"),
        "heard_calls": heard.count("<tool_call>"),
        "log_probabilities": len(output.response_logprobs or []) == len(output.response_ids),
    }


async def tool() -> dict[str, Any]:
    schema = {"type": "function", "function": {"name": "calculate", "description": "Work it out."}}
    one = AenvTool(
        {"env_name": NAME, "final_tools": ["submit_answer"], "split": "train"},
        OpenAIFunctionToolSchema.model_validate(schema),
    )
    id, _ = await one.create(create_kwargs={"task": "1-0"})
    response, score, seen = await one.execute(id, {"expression": "6 * 7"})
    reward = await one.calc_reward(id)
    await one.release(id)
    return {"text": response.text, "score": score, "seen": seen, "reward": reward}


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    street: str


def difficult(place: Place, other: Place | None, colour: Colour, either: int | str, any: Any) -> None:
    """Take what has no type of its own in its schema."""


def told() -> dict[str, Any]:
    """What verl's schema of a difficult tool says of its parameters' types."""
    schema = TypeAdapter(difficult).json_schema()
    function = {"name": "difficult", "description": "Difficult.", "parameters": schema}
    made = OpenAIFunctionToolSchema.model_validate(_flat({"type": "function", "function": function}))
    return {name: value.type for name, value in made.function.parameters.properties.items()}


async def main() -> None:
    said = {"loops": [await looped(sign) for sign in "+-*/"], "tool": await tool(), "types": told()}
    print(json.dumps(said))


asyncio.run(main())
