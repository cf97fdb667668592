"""A command in an isolated instance of an environment that comes with aenv."""

import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment("mini-terminal@1.0.1") as env:
        print(await env.call_tool("execute_command", {"command": "uname -s"}))


asyncio.run(main())
