"""Two environments as one: problems of `gsm-tools`, solved with the programs of `mini-terminal`.

python -m aenv.examples.composition
"""

from __future__ import annotations

import asyncio

from aenv import compose

PARTS = ("gsm-tools@^1", {"env": "mini-terminal@^1", "as": "terminal"})
NAME = "maths-and-terminal"
SUM = "python3 -c 'print(19 + 23)'"


async def main() -> None:
    """One instance has the tools of both, and ends with both."""
    async with compose(*PARTS, name=NAME) as env:
        for tool in await env.list_tools():
            print(tool["name"])
        problem = (await env.call_tool("read_problem", {})).text
        print(f"problem:  {len(problem.split())} words")
        told = (await env.call_tool("terminal_execute_command", {"command": SUM})).structured
        print(f"terminal: {told['output'][0].strip()}")
        print(
            f"submit:   {'error' if (await env.call_tool('submit_answer', {'answer': 42})).is_error else 'taken'}"
        )


if __name__ == "__main__":
    asyncio.run(main())
