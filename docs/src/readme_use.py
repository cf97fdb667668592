"""Use what `aenv run my-env` serves."""

import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("my-env@1.0.0") as env:
        print([tool["name"] for tool in await env.list_tools()])
        result = await env.call_tool("search_code", {"query": "register_tool"})
        print(result.text, result.is_error)
        print(await env.call_function("calculate_sum", {"a": 10, "b": 20}))
        print(await env.call_reward({"status": {"completed": True}}, name="evaluate"))


asyncio.run(main())
