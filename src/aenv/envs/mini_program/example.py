"""A page is built in `mini-program` without a model: written, checked, mended, and undone.

    python src/aenv/envs/mini_program/example.py

`python -m aenv.examples.mini_program` shows the same environment as an IDE in a browser.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aenv import Environment

PAGE = '<!doctype html><html lang="en"><head><title>Hello</title></head><body><p>Hello<div></p></body></html>'
VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'


async def main() -> None:
    """Print each step."""
    async with Environment("mini-program@1.0.0", ttl="10m") as env:

        async def act(tool: str, **arguments: Any) -> Any:
            result = await env.call_tool(tool, arguments)
            print(f"> {tool} {result.text[:300]}")
            return result.structured

        await act("write_file", path="index.html", content=PAGE)
        found = await act("validate_html")
        if not found["valid"]:
            mended = PAGE.replace("<div></p>", "</p>").replace("</title>", f"</title>{VIEWPORT}")
            await act("write_file", path="index.html", content=mended)
        await act("validate_html")
        await act("check_responsive_design")
        await act("log_browser_console")
        code = "open('data.json', 'w').write('[1, 2, 3]')"
        await act("execute_python_code", code=code)
        await act("list_files")
        history = await env.call_function("undo")
        shown = next(one for one in history["versions"] if one["number"] == history["shown"])
        print(f"undone: {', '.join(shown['files'])}")


if __name__ == "__main__":
    asyncio.run(main())
