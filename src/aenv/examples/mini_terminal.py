"""A session at a terminal: an instance of mini-terminal, a few commands, and a file.

python -m aenv.examples.mini_terminal
"""

from __future__ import annotations

import asyncio

from aenv import Environment

ENVIRONMENT = "mini-terminal@1.0.1"
PROGRAM = "import sys\nprint(sum(map(int, sys.argv[1:])))\n"
COMMANDS = (
    "mkdir -p work && cd work && pwd | xargs basename",
    "for n in 1 2 3; do echo line $n; done > lines.txt; wc -l < lines.txt",
    "python3 ../add.py 19 23",
    "exit_code() { return 3; }; exit_code",
)


async def main() -> None:
    """The folder of one command is that of the next: it is one shell."""
    async with Environment(ENVIRONMENT) as env:
        await env.call_tool("write_file", {"path": "add.py", "content": PROGRAM})
        for command in COMMANDS:
            result = (await env.call_tool("execute_command", {"command": command})).structured
            print(f"$ {command}\n{result['output'][0]}", end="")
            if result["returncode"]:
                print(f"[exit code {result['returncode']}]")


if __name__ == "__main__":
    asyncio.run(main())
