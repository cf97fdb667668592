"""What a user does with an environment that the published command line has pushed.

    python published_cli_sdk.py NAME@VERSION

Runs with the published package and with ours. Prints one JSON object of facts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from aenv import Environment


async def use(name: str) -> dict[str, Any]:
    key = os.environ.get("AENV_API_KEY")
    env = Environment(name, aenv_url="http://127.0.0.1:8080", api_key=key)
    try:
        tools = await env.list_tools()
        said = await env.call_tool("my_custom_echo_env", {"content": "hello"})
        return {
            "tools": [tool["name"] for tool in tools],
            "said": json.loads(said.content[0]["text"]),
            "reward": await env.call_reward({"task": "t1"}),
            "id": (await env.get_env_info())["instance_id"],
        }
    finally:
        await env.release()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(use(sys.argv[1]))))
