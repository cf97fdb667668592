"""Relays to the gateway: what lets an instance use other environments, whatever its network is.

As with models (`model_relays.py`), the relay listens in the instance's own network, or on the host's loopback
where the instance shares that; there the token, which only the instance has, keeps others out.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..base.errors import AEnvError, StartFailed, Unsupported
from ..isolation.egress import GATEWAY_PORT, Connect, Egress, GatewayRoute
from ..isolation.egress.server import Bounds
from . import proc
from .base import InstanceSpec
from .folder import InstanceFolder
from .instance_state import InstanceState, RelayedGateway
from .model_relays import Listen, ModelRelays

logger = logging.getLogger("aenv.engines")

_QUIET = 3600.0  # seconds: a call may take so long, and say nothing meanwhile


class GatewayRelays:
    """The relays of an engine. `listen` is for instances with a network of their own."""

    def __init__(self, listen: Listen | None = None) -> None:
        self._egress = Egress(bounds=Bounds(idle_timeout=_QUIET))
        self._listen = listen
        self._connect: Connect | None = None

    def lead_to(self, connect: Connect) -> None:
        """From now on relays lead to the gateway that `connect` gives connections to."""
        self._connect = connect

    async def close(self) -> None:
        await self._egress.__aexit__(None, None, None)

    async def opened(
        self, spec: InstanceSpec, folder: InstanceFolder | None = None, leader: proc.Process | None = None
    ) -> InstanceSpec:
        """The spec with the variables that lead to the gateway, if it may use that, and the relay open.

        `folder` and `leader` as for `ModelRelays.opened`.
        """
        if not spec.uses_environments:
            return spec
        if self._connect is None:
            raise Unsupported("nothing here makes instances for instances: the engine was given no gateway")
        route = GatewayRoute(spec.id, self._connect, f"relay-{secrets.token_urlsafe(24)}")
        try:
            listener, port = await self._listener(leader, GATEWAY_PORT if leader else 0)
        except OSError as error:
            raise StartFailed(f"the relay to the gateway cannot listen: {error.strerror or error}") from error
        if folder:
            folder.write_state(InstanceState(gateway=RelayedGateway(route.token, port)))
        self._egress.serve(spec.id, listener, route)
        return replace(spec, environment_variables={**route.variables(port), **spec.environment_variables})

    async def reopen(self, parts: Iterable[tuple[InstanceFolder, proc.Process]]) -> None:
        """Open those of instances that another engine object has made. What fails stays closed."""
        await asyncio.gather(*(self._reopen(*part) for part in parts if not self._egress.serves(part[0].id)))

    async def _reopen(self, folder: InstanceFolder, leader: proc.Process) -> None:
        state = folder.read_state()
        if state.gateway is None or self._connect is None:
            return
        try:
            listener, _ = await self._listener(None if state.host_network else leader, state.gateway.port)
        except (AEnvError, OSError, TimeoutError) as error:
            logger.warning("instance %r stays without other environments: %s", folder.id, error)
            return
        if self._egress.serves(folder.id) or not leader.runs():
            listener.close()
        else:
            self._egress.serve(folder.id, listener, GatewayRoute(folder.id, self._connect, state.gateway.token))

    async def stop(self, id: str) -> None:
        """Return when the instance's relay is closed. Unknown ids are fine."""
        await self._egress.stop(id)

    async def _listener(self, leader: proc.Process | None, port: int) -> tuple[socket.socket, int]:
        if leader and self._listen:
            return await self._listen(leader, port), port
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        return listener, listener.getsockname()[1]


class InstanceRelays:
    """All relays of an engine's instances: to models, and to the gateway."""

    def __init__(self, listen: Listen | None = None) -> None:
        self.models = ModelRelays(listen)
        self._gateway = GatewayRelays(listen)
        self.lead_to = self._gateway.lead_to

    async def close(self) -> None:
        await asyncio.gather(self.models.close(), self._gateway.close())

    async def opened(
        self, spec: InstanceSpec, folder: InstanceFolder | None = None, leader: proc.Process | None = None
    ) -> InstanceSpec:
        """The spec with the variables that lead to what it may ask besides its network."""
        spec = await self.models.opened(spec, folder, leader)
        return await self._gateway.opened(spec, folder, leader)

    async def reopen(self, parts: Sequence[tuple[str, InstanceFolder, proc.Process]]) -> None:
        """Open those of instances, and of their sidecars, that another engine object has made.

        The parts are as for `ModelRelays.reopen`. A sidecar has no relay to the gateway.
        """
        own = [(folder, leader) for name, folder, leader in parts if name == folder.id]
        await asyncio.gather(self.models.reopen(parts), self._gateway.reopen(own))

    async def stop(self, id: str) -> None:
        """Return when all of the instance are closed."""
        # One after the other: most instances have none, and a task for each would cost more than that.
        await self.models.stop(id)
        await self._gateway.stop(id)
