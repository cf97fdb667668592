"""AReaL's proxy server without a GPU: a script stands for the inference engine.

A pattern stands for the parser of tool calls, which sglang or vLLM brings.
"""

from __future__ import annotations

import json
import re
import socket
import tempfile
import threading
from types import SimpleNamespace
from typing import Any

import uvicorn
from areal.api.cli_args import AgentConfig
from areal.api.io_struct import ModelResponse
from areal.experimental.openai import client
from areal.experimental.openai.proxy import proxy_rollout_server as proxy
from areal.experimental.openai.proxy.client_session import post_json
from areal.infra import workflow_context
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)

from aenv.examples.trainers.scripted_model import answer, tokenizer

KEY = "key-of-the-administrator"
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


class ScriptedEngine:
    """What AReaL asks for tokens. `sign` stands between the numbers of the problem."""

    sign = "+"

    def __init__(self, tokenizer_path: str) -> None:
        agent = AgentConfig(agent_cls_path="none", admin_api_key=KEY)
        self.config = SimpleNamespace(tokenizer_path=tokenizer_path, agent=agent, lora_name="")

    def initialize(self) -> None:
        """Nothing: there are no weights to load."""

    async def agenerate(self, request: Any) -> ModelResponse:
        text = answer(request.tokenizer.decode(request.input_ids), self.sign)
        said = request.tokenizer(text)["input_ids"]
        return ModelResponse(
            input_tokens=request.input_ids,
            output_tokens=said,
            output_logprobs=[-0.5] * len(said),
            output_versions=[0] * len(said),
            tokenizer=request.tokenizer,
        )


async def served() -> str:
    """The address of AReaL's proxy with this engine, which listens until the program ends."""
    client.process_tool_calls = _parsed
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(proxy.app, log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    session = await workflow_context.get_aiohttp_session()
    with tempfile.TemporaryDirectory(prefix="aenv-areal-") as folder:
        tokenizer().save_pretrained(folder)
        engine = {"engine": f"{__name__}.ScriptedEngine", "init_kwargs": {"tokenizer_path": folder}}
        await post_json(session, f"{url}/create_engine", engine)
        await post_json(session, f"{url}/call", {"method": "initialize"}, total_timeout=60)
    return url


def _parsed(text: str, tools: Any, *parsers: str, **options: Any) -> tuple[Any, str, str]:
    found = [json.loads(call) for call in _CALL.findall(text)]
    functions = [Function(name=one["name"], arguments=json.dumps(one["arguments"])) for one in found]
    calls = [
        ChatCompletionMessageFunctionToolCall(id=f"call_{number}", type="function", function=function)
        for number, function in enumerate(functions)
    ]
    return calls or None, _CALL.sub("", text), "tool_calls" if calls else "stop"
