"""The owner's side of the data port: where workers pass on what they do not answer themselves."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from ...instances.instance_access import InstanceAccess
from ...serving import envelope, listeners
from ..proxy import END_IS_KNOWN, broke_off


@dataclass(frozen=True)
class OwnerListener:
    """A listening socket without a name: only a process that has the descriptor can connect to it."""

    listener: socket
    descriptor: int

    @property
    def path(self) -> str:
        """Where it is found by a process that has the descriptor under the same number."""
        return f"/proc/self/fd/{self.descriptor}"


@contextlib.contextmanager
def owner_listener() -> Iterator[OwnerListener]:
    """One that leaves no file behind, however the process ends."""
    with contextlib.ExitStack() as stack:
        with tempfile.TemporaryDirectory(prefix="aenv-") as folder:
            path = Path(folder, "owner")
            listener = stack.enter_context(listeners.bind_unix(path))
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
        yield OwnerListener(listener, descriptor)


def answering(proxy: ASGIApp, instances: InstanceAccess, secret: str, server: tuple[str, int | None]) -> ASGIApp:
    """`proxy` for requests that came to the data port `server`, and what workers ask themselves."""
    prefix = f"/{secret}/"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(prefix):
            instance = scope["path"].removeprefix(prefix)
            error = broke_off(instance, await instances.why_ended(instance, END_IS_KNOWN))
            await envelope.failure(error)(scope, receive, send)
        else:
            # Not as one through the platform's own socket, whose every client is trusted.
            await proxy({**scope, "server": server}, receive, send)

    return app
