"""A scripted agent with an interpreter: it computes, reads an error, repairs its code, and draws where it can."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aenv import Environment

STEPS = [
    "data = {'mon': 3, 'tue': '5', 'wed': 4}\nsum(data.values())",
    "data = {day: int(value) for day, value in data.items()}\nsum(data.values())",
    "import matplotlib.pyplot as plt\nplt.bar(list(data), list(data.values()))\nplt.title('a week')",
    "[day for day, value in data.items() if value == max(data.values())]",
]


async def main() -> None:
    async with Environment("python@1.0.0", ttl="10m") as env:
        for code in STEPS:
            result = await env.call_tool("run", {"code": code})
            said: dict[str, Any] = json.loads(result.content[0]["text"])
            images = sum(part["type"] == "image" for part in result.content)
            print(f">>> {code}\n{said['error'] or said['result']}{f'  ({images} images)' if images else ''}\n")


asyncio.run(main())
