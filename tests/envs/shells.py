"""Built-in environments for tests: their modules, loaded as the runtime loads them, and instances of them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aenv
from aenv.inside.runtime.loader import load
from tests.command_line import environ
from tests.gateways import Gateway, running_gateway

ENVIRONMENTS = Path(aenv.__file__).parent / "envs"


def module(folder: str, name: str) -> ModuleType:
    """A module of a built-in environment. Its decorators fill a registry of their own."""
    load(ENVIRONMENTS / folder)
    return importlib.import_module(name)


@contextlib.asynccontextmanager
async def native_gateway(home: Path, folder: str) -> AsyncIterator[Gateway]:
    """A gateway with the native engine that knows one built-in environment."""
    async with running_gateway(home, ENVIRONMENTS / folder, engine="native") as gateway:
        yield gateway


async def example(gateway: Gateway, folder: str, **variables: str) -> str:
    """What the environment's example prints, run as a user runs it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ENVIRONMENTS / folder / "example.py")),
        env=environ(AENV_SYSTEM_URL=f"http://{gateway.address.host}:{gateway.address.port}", **variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def result_of(gateway: Gateway, id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """The whole of a tool's answer: content, structured, is_error."""
    status, reply = await gateway.ask("POST", f"/instances/{id}/tools/{tool}", arguments, origin=gateway.data)
    assert status == 200, reply
    data: dict[str, Any] = reply["data"]
    return data


async def said(gateway: Gateway, id: str, tool: str, **arguments: Any) -> str:
    """The text of a tool's answer."""
    return str((await result_of(gateway, id, tool, **arguments))["content"][0]["text"])


async def post(gateway: Gateway, id: str, path: str, **body: Any) -> Any:
    """The data of a function's, a reward's or a reset's answer."""
    status, reply = await gateway.ask("POST", f"/instances/{id}{path}", body, origin=gateway.data)
    assert status == 200, reply
    return reply["data"]
