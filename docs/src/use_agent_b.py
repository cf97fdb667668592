import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("agent-b@1.0.0") as agent_b:
        print([tool["name"] for tool in await agent_b.list_tools()])
        for message in ("Hello!", "Again!"):
            response = await agent_b.call_tool("chat", {"message": message})
            print(response.content)


asyncio.run(main())
