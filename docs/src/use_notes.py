"""Use the environment: as an agent, as a trainer."""

import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("notes@1.0.0") as env:
        for tool in await env.list_tools():
            print(tool["name"], "-", tool["description"])

        result = await env.call_tool("write_note", {"title": "today", "text": "it rains"})
        print(result.text, result.is_error)

        result = await env.call_tool("read_notes", {})
        print(result.structured)

        async for item in env.stream("export", {"copies": 2}):
            print(item)

        print(await env.call_function("count", {}))
        print(await env.call_reward({"title": "today"}), await env.call_reward({}, name="brevity"))
        print(await env.reset(seed=1))
        print(await env.check_health())


asyncio.run(main())
