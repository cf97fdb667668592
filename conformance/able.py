"""An instance that has something to show: its environment, and the fixtures to ask for what it can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from aenv.engines.base import Address, CommandOutput, Engine, Exec, Files, InstanceSpec, Logs, Ports

from .engine import MakeEngine, Projects

ABLE = '''
import os
import socket
import subprocess
import sys
import threading

from aenv import register_tool

print("the environment was loaded", flush=True)
ECHO = """
def echo(server, name):
    while True:
        client, _ = server.accept()
        with client:
            said = b""
            while piece := client.recv(65536):
                said += piece
            client.sendall(name.encode() + b": " + said)
"""
exec(ECHO)


@register_tool
def say(text: str) -> bool:
    """Print it."""
    print(text, flush=True)
    return True


@register_tool
def last_words(text: str) -> None:
    """Print it, and end at once."""
    os.write(1, text.encode())
    os._exit(0)


@register_tool
def listen(host: str, name: str) -> int:
    """Listen on a free port, which is returned, and send back under this name all that somebody says there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    threading.Thread(target=echo, args=(server, name), daemon=True).start()
    return server.getsockname()[1]


@register_tool
def listen_in_another_process(name: str) -> int:
    """Let a child do so that has left for a session of its own."""
    code = "import socket, sys\\ns = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", ECHO + code + "\\necho(s, sys.argv[1])", name],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    return int(child.stdout.readline())


@register_tool
def link(path: str, target: str) -> bool:
    """Make a symbolic link in the workspace."""
    os.symlink(target, path)
    return True


@register_tool
def pipe(path: str) -> bool:
    """Make a named pipe in the workspace."""
    os.mkfifo(path)
    return True


@register_tool
def write(path: str, text: str) -> bool:
    """Write a file in the workspace."""
    with open(path, "w") as file:
        return file.write(text) > 0


@register_tool
def read(path: str) -> list[str]:
    """Read a file of the workspace."""
    with open(path) as file:
        return file.readlines()
'''

Capability = TypeVar("Capability", Logs, Exec, Files, Ports)


async def whole(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


async def result(command: AsyncIterator[CommandOutput]) -> tuple[int | None, bytes, bytes]:
    """Exit code, stdout and stderr of a command."""
    outputs = [output async for output in command]
    assert [output.stream for output in outputs].index("exit") == len(outputs) - 1
    printed = {
        stream: b"".join(output.data for output in outputs if output.stream == stream)
        for stream in ("stdout", "stderr")
    }
    return outputs[-1].exit_code, printed["stdout"], printed["stderr"]


class Able:
    """Fixtures. What an engine does not have is skipped."""

    @pytest.fixture
    def spec(self, projects: Projects) -> InstanceSpec:
        return projects.spec(ABLE, environment_variables={"COLOUR": "blue"})

    @pytest.fixture
    async def instance(self, engine: Engine, spec: InstanceSpec) -> Address:
        return await engine.create(spec)

    @pytest.fixture
    def another(self, make_engine: MakeEngine) -> Engine:
        return make_engine()

    @pytest.fixture
    def logs(self, another: Engine) -> Logs:
        return _having(another, Logs)

    @pytest.fixture
    def exec(self, another: Engine) -> Exec:
        return _having(another, Exec)

    @pytest.fixture
    def files(self, another: Engine) -> Files:
        return _having(another, Files)

    @pytest.fixture
    def ports(self, another: Engine) -> Ports:
        return _having(another, Ports)


def _having(engine: Engine, capability: type[Capability]) -> Capability:
    if not isinstance(engine, capability):
        pytest.skip(f"the {engine.name} engine has no {capability.__name__.lower()}")
    return engine
