"""Many instances in one request: all of them, or none."""

import asyncio

from aenv import Environment


async def main() -> None:
    async with Environment.create_many(4, "notes@1.0.0", labels={"experiment": "rain"}) as envs:
        notes = [{"title": f"note {n}", "text": "it rains"} for n in range(4)]
        await asyncio.gather(*(env.call_tool("write_note", note) for env, note in zip(envs, notes, strict=True)))
        for env in envs:
            print((await env.call_tool("read_notes", {})).structured)


asyncio.run(main())
