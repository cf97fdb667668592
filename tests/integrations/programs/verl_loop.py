"""What verl's own loop of tool calls gives its trainer, in the example; and the tool alone."""

import asyncio
import json
from enum import Enum
from typing import Any

from pydantic import BaseModel, TypeAdapter
from verl.tools.schemas import OpenAIFunctionToolSchema

from aenv.examples.trainers import NAME
from aenv.examples.trainers.verl import TOKENS, ScriptedServer, looped
from aenv.integrations.verl import AenvTool, _flat


async def played(sign: str) -> dict[str, Any]:
    server = ScriptedServer(sign)
    output = await looped(server)
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
    said = {"loops": [await played(sign) for sign in "+-*/"], "tool": await tool(), "types": told()}
    print(json.dumps(said))


asyncio.run(main())
