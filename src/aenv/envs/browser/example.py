"""An agent at work in the browser: it reads the accessibility tree, and acts by refs. No model is needed.

    python src/aenv/envs/browser/example.py [PICTURE]

It does the task "inbox-cleanup": delete every message of one sender. With PICTURE it saves a screenshot there.
"""

from __future__ import annotations

import asyncio
import base64
import re
import sys
from pathlib import Path

from aenv import Environment


async def main(picture: str) -> None:
    """Do one task and print each step."""
    async with Environment("browser@1.0.0", environment_variables={"BROWSER_TASK": "inbox-cleanup"}) as env:
        task = await env.call_function("get_task", {})
        print(f"task: {task['instruction']}")
        sender = re.search(r"message from (.+?), and", task["instruction"])
        assert sender
        await env.call_tool("goto", {"url": "/inbox"})
        tree = (await env.call_tool("accessibility_tree", {})).text
        for ref in boxes_of(tree, sender[1]):
            print(f"click {ref}: {(await env.call_tool('click', {'ref': ref})).text}")
        print(f"click: {(await env.call_tool('click', {'text': 'Delete selected'})).text}")
        if picture:
            shot = (await env.call_tool("screenshot", {})).content[0]
            await asyncio.to_thread(Path(picture).write_bytes, base64.b64decode(shot["data"]))
        print(f"reward: {await env.call_reward({})}")


def boxes_of(tree: str, sender: str) -> list[str]:
    """The refs of the checkboxes in the rows that name the sender."""
    rows = re.split(r"^\s*- row$", tree, flags=re.MULTILINE)[1:]
    found = (re.search(r"checkbox .*\[(e[0-9]+)\]", row) for row in rows if f'"{sender}"' in row)
    return [match[1] for match in found if match]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))
