"""What `control/serving/listeners.py` takes from uvicorn without a promise: each part is where it is looked for.

When one of these fails after an update, mend listeners.py, or keep the bound in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import tomllib
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from aenv.control.serving import listeners

MOVED = f"uvicorn {uvicorn.__version__} moved it; control/serving/listeners.py relies on it"


class Wire(asyncio.Transport):
    """A transport that keeps what is written, one entry a write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


async def hello(scope: object, receive: object, send: object) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]


def connection() -> httptools_impl.HttpToolsProtocol:
    config = uvicorn.Config(hello, ws="none", lifespan="off", interface="asgi3", log_config=None)  # type: ignore[arg-type]
    config.load()
    return httptools_impl.HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())


def test_the_bound_is_the_next_minor_version_after_the_one_that_is_tested() -> None:
    project = tomllib.loads(Path(__file__).parent.with_name("pyproject.toml").read_text())["project"]
    [bound] = [word for word in project["dependencies"] if word.startswith("uvicorn")]
    major, minor = map(int, uvicorn.__version__.split(".")[:2])
    assert re.search(r"<(\S+)$", bound), "uvicorn has no upper bound in pyproject.toml"
    assert bound.endswith(f",<{major}.{minor + 1}"), f"tested with {uvicorn.__version__}, allowed is {bound}"


OVERRIDDEN = [name for name, value in vars(listeners._ServerConnection).items() if inspect.isfunction(value)]


def test_every_method_that_is_overridden_or_called_exists_and_takes_the_same() -> None:
    theirs = httptools_impl.HttpToolsProtocol
    shared = [name for name in OVERRIDDEN if name not in ("share", "peer_user", "_refuse", "_stop_deadline")]
    assert {"connection_made", "data_received", "on_message_begin", "on_headers_complete"} < {*shared}
    for name in shared:
        assert hasattr(theirs, name), f"{name}: {MOVED}"
        ours = inspect.signature(getattr(listeners._ServerConnection, name))
        assert list(ours.parameters) == list(inspect.signature(getattr(theirs, name)).parameters), (
            f"{name}: {MOVED}"
        )


@pytest.mark.parametrize("name", ["share", "is_lost", "_refuse", "_stop_deadline", "_deadline", "_head_bytes"])
async def test_no_name_of_ours_is_one_of_theirs(name: str) -> None:
    assert not hasattr(connection(), name), f"{name}: {MOVED}"


async def test_a_connection_keeps_its_state_where_it_is_looked_for() -> None:
    protocol = connection()
    assert isinstance(protocol.connections, set), MOVED
    assert isinstance(protocol.tasks, set), MOVED
    protocol.connection_made(Wire())
    assert protocol in protocol.server_state.connections, MOVED
    assert protocol.timeout_keep_alive_task is None, MOVED
    assert callable(protocol.timeout_keep_alive_handler), MOVED
    assert protocol.cycle is None, MOVED
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
    assert protocol.scope["type"] == "http", MOVED
    assert (protocol.cycle.response_complete, protocol.cycle.keep_alive) == (False, True), MOVED
    [task] = protocol.server_state.tasks
    await task
    assert protocol.cycle.response_complete is True, MOVED
    protocol.connection_lost(None)


async def test_the_head_of_a_reply_is_one_write_of_its_own() -> None:
    protocol, wire = connection(), Wire()
    protocol.connection_made(wire)
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
    await asyncio.gather(*protocol.tasks)
    head, body = wire.writes
    assert (head.startswith(b"HTTP/1.1 200"), head.endswith(b"\r\n\r\n"), body) == (True, True, b"ok"), MOVED
    protocol.connection_lost(None)
