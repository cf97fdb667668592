"""Runs one block as a program of its own, top-level `await` included: `python run_block.py FILE EXPRESSION`.

Afterwards the expression must be true in the block's own names.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
import types
from pathlib import Path


def main(path: str, expression: str) -> None:
    code = compile(Path(path).read_text(), path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "__main__"}
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_run(types.FunctionType(code, names), expression, names))
    else:
        exec(code, names)
        assert eval(expression, names), f"{expression} is not true"


async def _run(block: types.FunctionType, expression: str, names: dict[str, str]) -> None:
    await block()
    assert eval(expression, names), f"{expression} is not true"
    env = names.get("env") or names.get("mini_terminal")
    if env is not None:
        await env.release()  # an excerpt seldom does


if __name__ == "__main__":
    main(*sys.argv[1:])
