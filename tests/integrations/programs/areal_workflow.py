"""AReaL's own workflow and proxy server play tasks in real instances.

A script stands for the inference engine, and a pattern for the parser of tool calls, which sglang or vLLM brings.
"""

import asyncio
import json
import re
import socket
import sys
import threading
from types import SimpleNamespace
from typing import Any

import areal_workflow  # this module, as the proxy imports it
import uvicorn
from areal.api.cli_args import AgentConfig
from areal.api.io_struct import ModelResponse
from areal.experimental.openai import client
from areal.experimental.openai.proxy import proxy_rollout_server as proxy
from areal.experimental.openai.proxy.client_session import OpenAIProxyClient, post_json
from areal.experimental.openai.proxy.workflow import OpenAIProxyWorkflow
from areal.infra import workflow_context
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)

from aenv.examples.trainers.scripted_model import tokenizer
from aenv.integrations.areal import AenvAgent, run_in_session

KEY = "key-of-the-administrator"
SIGN = "+"
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


class ScriptedEngine:
    """Calculates with the numbers that it reads, and submits the result."""

    def __init__(self, tokenizer_path: str) -> None:
        agent = AgentConfig(agent_cls_path="none", admin_api_key=KEY)
        self.config = SimpleNamespace(tokenizer_path=tokenizer_path, agent=agent, lora_name="")

    def initialize(self) -> None: ...

    async def agenerate(self, request: Any) -> ModelResponse:
        text = request.tokenizer.decode(request.input_ids)
        if "<|im_start|>tool" in text:
            result = text.rpartition("<|im_start|>tool\n")[2].partition("<|im_end|>")[0]
            call = {"name": "submit_answer", "arguments": {"answer": result}}
        else:
            numbers = re.findall(r"\d+", text.rpartition("<|im_start|>user")[2])
            call = {"name": "calculate", "arguments": {"expression": SIGN.join(numbers)}}
        said = request.tokenizer(f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>")["input_ids"]
        return ModelResponse(
            input_tokens=request.input_ids,
            output_tokens=said,
            output_logprobs=[-0.5] * len(said),
            output_versions=[0] * len(said),
            tokenizer=request.tokenizer,
        )


def parsed(text: str, tools: Any, *parsers: str, **options: Any) -> tuple[Any, str, str]:
    """In place of the parsers of sglang and vLLM."""
    found = [json.loads(call) for call in _CALL.findall(text)]
    functions = [Function(name=one["name"], arguments=json.dumps(one["arguments"])) for one in found]
    calls = [
        ChatCompletionMessageFunctionToolCall(id=f"call_{number}", type="function", function=function)
        for number, function in enumerate(functions)
    ]
    return calls or None, _CALL.sub("", text), "tool_calls" if calls else "stop"


def served() -> str:
    """The address of AReaL's proxy, which listens until the program ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(proxy.app, log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def told(interactions: dict[str, Any]) -> dict[str, Any]:
    """What the trainer would learn from."""
    tensors = [one.to_tensor_dict() for one in interactions.values()]
    return {
        "rewards": [one.reward for one in interactions.values()],
        "learned": all(0 < int(one["loss_mask"].sum()) < one["loss_mask"].numel() for one in tensors),
    }


async def played(url: str, agent: AenvAgent, mode: str, sign: str) -> dict[str, Any]:
    areal_workflow.SIGN = sign
    workflow = OpenAIProxyWorkflow(mode, agent, url, KEY, subproc_max_workers=1)
    workflow_context.set(workflow_context.WorkflowContext(task_id=7))
    return await told(await workflow.arun_episode(None, {"task_id": "1-0"}))


async def outside(url: str, agent: AenvAgent, refused: asyncio.Event) -> dict[str, Any]:
    """In a session of an agent's own, which has to wait until the trainer has room for it."""
    session = await workflow_context.get_aiohttp_session()
    playing = asyncio.create_task(run_in_session(agent, {"task_id": "1-0"}, proxy_url=url, admin_key=KEY))
    await refused.wait()
    await post_json(session, f"{url}/grant_capacity", headers={"Authorization": f"Bearer {KEY}"})
    reward = await playing
    asked = OpenAIProxyClient(session, url, "1-0", KEY)
    asked.session_id = "1-0-0"
    return {"reward": reward, **await told(await asked.export_interactions())}


async def main() -> None:
    client.process_tool_calls = parsed
    loop, refused = asyncio.get_running_loop(), asyncio.Event()

    @proxy.app.middleware("http")
    async def watched(request: Any, following: Any) -> Any:
        reply = await following(request)
        if reply.status_code == 429:
            loop.call_soon_threadsafe(refused.set)
        return reply

    url = served()
    session = await workflow_context.get_aiohttp_session()
    tokenizer().save_pretrained("tokens")
    engine = {"engine": "areal_workflow.ScriptedEngine", "init_kwargs": {"tokenizer_path": "tokens"}}
    await post_json(session, f"{url}/create_engine", engine)
    await post_json(session, f"{url}/call", {"method": "initialize"}, total_timeout=60)
    agent = AenvAgent("gsm-tools@1.0.0", final_tools=("submit_answer",), split="train")
    said = {
        "inline": [await played(url, agent, "inline", sign) for sign in "+-*/"],
        "subproc": await played(url, agent, "subproc", "-"),
        "outside": await outside(url, agent, refused),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
