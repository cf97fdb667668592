"""What programs with agents share: how they are run, and what they print as JSON.

PROGRAM.py tools     a conversation through `aenv.integrations.NAME.tools`
PROGRAM.py sync      the same with a SyncEnvironment, where the framework has calls that block
PROGRAM.py cancel    a conversation that is cancelled while a tool runs
PROGRAM.py interrupt a conversation that blocks, and is interrupted while a tool runs
PROGRAM.py mcp       a conversation through the framework's own MCP client, at the URL of an instance
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from aenv import Environment, SyncEnvironment

NAME = "difficult@1.0.0"
PROMPT = "Do what you are told."
URL = os.environ.get("OPENAI_BASE_URL", "")
KEY = "none"

# What an agent's last message is, and all that the framework has kept of the conversation, as text.
Said = tuple[str, str]


def main(
    *,
    tools: Callable[[Environment], Awaitable[Said]] | None = None,
    sync: Callable[[SyncEnvironment], Said] | None = None,
    mcp: Callable[[str], Awaitable[Said]],
) -> None:
    """Run what the command line asks for."""
    asked = sys.argv[1]
    if asked == "sync":
        assert sync
        with SyncEnvironment(NAME) as env:
            said = sync(env)
            _print(said, env.call_function("received"))
    elif asked == "interrupt":
        assert sync
        _interrupted(sync)
    elif asked == "cancel":
        assert tools
        asyncio.run(_cancelled(tools))
    else:
        asyncio.run(_conversed(tools if asked == "tools" else lambda env: mcp(env.mcp_url)))


async def _conversed(converse: Any) -> None:
    async with Environment(NAME) as env:
        said = await converse(env)
        _print(said, await env.call_function("received"))


async def _cancelled(converse: Callable[[Environment], Awaitable[Said]]) -> None:
    async with Environment(NAME) as env:
        talk = asyncio.ensure_future(converse(env))
        waiting = asyncio.ensure_future(env.call_function("until_waiting"))
        await asyncio.wait({talk, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not talk.done(), f"the conversation has ended: {talk}"
        talk.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await talk
        print(json.dumps({"tool_was_cancelled": await env.call_function("until_cancelled")}))


def _interrupted(converse: Callable[[SyncEnvironment], Said]) -> None:
    """As a user does who presses Ctrl-C."""
    with SyncEnvironment(NAME) as env:

        def press() -> None:
            env.call_function("until_waiting")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        watcher = threading.Thread(target=press)
        watcher.start()
        with contextlib.suppress(KeyboardInterrupt):
            converse(env)
        watcher.join()
        print(json.dumps({"tool_was_cancelled": env.call_function("until_cancelled")}))


def _print(said: Said, received: Any) -> None:
    final, transcript = said
    print(json.dumps({"final": final, "transcript": transcript, "received": received}))
