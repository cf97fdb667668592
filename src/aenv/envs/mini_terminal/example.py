"""A scripted agent in a terminal: it writes a program, runs it, sees it fail, repairs it, and talks to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aenv import Environment

PROGRAM = "total = 0\nfor line in open('numbers.txt'):\n    total += line\nprint('total', total)\n"


async def main() -> None:
    async with Environment("mini-terminal@1.0.1", ttl="10m") as env:

        async def act(tool: str, **arguments: Any) -> Any:
            result = await env.call_tool(tool, arguments)
            text = result.content[0]["text"]
            print(f"> {tool} {json.dumps(arguments)}\n{text}\n")
            return text if result.is_error else json.loads(text)

        await act("execute_command", command="seq 10 > numbers.txt && wc -l numbers.txt")
        await act("write_file", path="total.py", content=PROGRAM)
        seen = await act("execute_command", command="python3 total.py")
        if seen["returncode"] and "TypeError" in seen["output"][0]:
            await act("execute_command", command="sed -i 's/+= line/+= int(line)/' total.py && python3 total.py")
        # A program that asks: the command does not end in time, and is answered.
        asked = await act("execute_command", command="read -p 'sure? ' answer; echo you said $answer", timeout=0.5)
        if not asked["output"][1]:
            await act("send_input", text="yes\n")


asyncio.run(main())
