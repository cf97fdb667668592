"""The same without async: for scripts and notebooks."""

from aenv import SyncEnvironment

with SyncEnvironment("notes@1.0.0") as env:
    env.call_tool("write_note", {"title": "today", "text": "it rains"})
    print(env.call_tool("read_notes").structured)
