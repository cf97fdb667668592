"""What the tools of mini-program do, for `aenv test`: they are called in the instance that it has made."""

import asyncio
import os

from aenv import Environment


def test_a_page_is_written_checked_changed_by_python_and_undone():
    async def work():
        async with Environment("mini-program@1.0.0", attach=os.environ["AENV_INSTANCE_ID"]) as env:
            page = '<!doctype html><html lang="en"><title>Hello</title><p>Hello</p></html>'
            await env.call_tool("write_file", {"file_path": "/index.html", "content": page})
            assert (await env.call_tool("read_file", {"path": "index.html"})).text == page
            assert (await env.call_tool("validate_html")).structured["valid"]
            await env.call_tool("execute_python_code", {"code": "open('a.txt', 'w').write('a')"})
            listed = (await env.call_tool("list_files")).structured["files"]
            assert [file["path"] for file in listed] == ["a.txt", "index.html"]
            await env.call_function("undo")
            listed = (await env.call_tool("list_files")).structured["files"]
            assert [file["path"] for file in listed] == ["index.html"]
            assert (await env.call_tool("write_file", {"path": "../out", "content": ""})).is_error

    asyncio.run(work())
