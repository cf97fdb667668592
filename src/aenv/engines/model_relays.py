"""Relays to models: what lets an instance ask one model, whatever its network is, without having the model's key.

An instance with a network of its own has its relay there, at a fixed port; a sidecar, whose network is another
one, has a second relay at the same port. An instance that shares the host's network has its relay on the host's
loopback, at a free port; the token, which only the instance has, keeps others out.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ..base.errors import AEnvError, StartFailed
from ..isolation.egress import MODEL_PORT, Egress, ModelRoute
from . import proc
from .base import InstanceSpec
from .folder import InstanceFolder
from .instance_state import InstanceState, RelayedModel

logger = logging.getLogger("aenv.engines")

Listen = Callable[[proc.Process, int], Awaitable[socket.socket]]
"""Gives a socket that listens on a port in the network of a process."""


class ModelRelays:
    """The relays of an engine. `listen` is for instances with a network of their own."""

    def __init__(self, listen: Listen | None = None) -> None:
        self._egress = Egress()
        self._listen = listen

    async def close(self) -> None:
        await self._egress.__aexit__(None, None, None)

    async def opened(
        self, spec: InstanceSpec, folder: InstanceFolder | None = None, leader: proc.Process | None = None
    ) -> InstanceSpec:
        """The spec with the variables that lead to the model it may ask, if any, and the relay open.

        With a `folder` it is written down, so that an engine after this one opens it again. Without a `leader`
        the relay is on the host.
        """
        if spec.model is None:
            return spec
        token = f"sk-aenv-{secrets.token_urlsafe(24)}"
        route = ModelRoute.parse(spec.model.url, spec.model.key, token)
        try:
            listener, port = await self._listener(leader, MODEL_PORT if leader else 0)
        except OSError as error:
            raise StartFailed(f"the relay to the model cannot listen: {error.strerror or error}") from error
        if folder:
            folder.write_state(InstanceState(model=RelayedModel(spec.model.url, spec.model.key, token, port)))
        self._egress.serve(spec.id, listener, route)
        return replace(spec, environment_variables={**route.variables(port), **spec.environment_variables})

    async def opened_for_sidecar(self, name: str, folder: InstanceFolder, sidecar: proc.Process) -> dict[str, str]:
        """The variables that lead the sidecar to the model of its instance, if any, and its relay open.

        `name` is what `stop` takes. Where both share the host's network, the relay of the instance is used.
        """
        state = folder.read_state()
        if state.model is None:
            return {}
        route = ModelRoute.parse(state.model.url, state.model.key, state.model.token)
        if not state.host_network:
            try:
                listener, _ = await self._listener(sidecar, state.model.port)
            except OSError as error:
                why = error.strerror or error
                raise StartFailed(f"the sidecar's relay to the model cannot listen: {why}") from error
            self._egress.serve(name, listener, route)
        return route.variables(state.model.port)

    async def reopen(self, parts: Iterable[tuple[str, InstanceFolder, proc.Process]]) -> None:
        """Open those of instances, and of their sidecars, that another engine object has made.

        Each part has the name that `stop` takes, the instance's folder, and its first process. What fails stays
        closed.
        """
        await asyncio.gather(*(self._reopen(*part) for part in parts if not self._egress.serves(part[0])))

    async def _reopen(self, name: str, folder: InstanceFolder, leader: proc.Process) -> None:
        state = folder.read_state()
        if state.model is None:
            return
        try:
            route = ModelRoute.parse(state.model.url, state.model.key, state.model.token)
            inside = None if state.host_network else leader
            listener, _ = await self._listener(inside, state.model.port)
        except (AEnvError, OSError, TimeoutError) as error:
            logger.warning("instance %r stays without its model: %s", name, error)
            return
        if self._egress.serves(name) or not leader.runs():
            listener.close()
        else:
            self._egress.serve(name, listener, route)

    async def stop(self, name: str) -> None:
        """Return when the relay of an instance, or of a sidecar, is closed. Unknown names are fine."""
        await self._egress.stop(name)

    async def _listener(self, leader: proc.Process | None, port: int) -> tuple[socket.socket, int]:
        if leader and self._listen:
            return await self._listen(leader, port), port
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        return listener, listener.getsockname()[1]
