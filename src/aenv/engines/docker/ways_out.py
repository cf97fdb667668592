"""The ways out of containers without a network: to hosts that a policy lists, and to a model.

Both are served on unix sockets in a folder that the container can only read; its runtime passes connections to
ports of its loopback on to them (`inside/runtime/in_container.py`). So an instance has no network, and the gateway
needs no rights over its namespaces.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from dataclasses import replace
from pathlib import Path

from ...isolation.egress import MODEL_PORT, Egress, EgressPolicy, ModelRoute
from ..base import InstanceSpec
from ..folder import InstanceFolder, bind
from ..instance_state import InstanceState, RelayedModel

_BACKLOG = 128


class WaysOut:
    def __init__(self) -> None:
        self._egress = Egress()
        self._models = Egress()

    async def close(self) -> None:
        for served in (self._egress, self._models):
            await served.__aexit__(None, None, None)

    def opened(self, spec: InstanceSpec, folder: InstanceFolder, place: Path) -> InstanceSpec:
        """Open those that the spec asks for; the spec with the variables that lead to the model."""
        if spec.network.kind == "egress":
            folder.write_state(InstanceState(egress=spec.network.hosts))
        if spec.model:
            token = f"sk-aenv-{secrets.token_urlsafe(24)}"
            model = RelayedModel(spec.model.url, spec.model.key, token, MODEL_PORT)
            folder.write_state(InstanceState(model=model))
            route = ModelRoute.parse(spec.model.url, spec.model.key, token)
            variables = {**route.variables(MODEL_PORT), **spec.environment_variables}
            spec = replace(spec, environment_variables=variables)
        self.reopen(folder, place)
        return spec

    def reopen(self, folder: InstanceFolder, place: Path) -> None:
        """Open what was written down, and is not open here."""
        state = folder.read_state()
        if state.egress and not self._egress.serves(folder.id):
            self._egress.serve(folder.id, _listener(place / "egress"), EgressPolicy.parse(state.egress))
        if state.model and not self._models.serves(folder.id):
            route = ModelRoute.parse(state.model.url, state.model.key, state.model.token)
            self._models.serve(folder.id, _listener(place / "model"), route)

    async def stop(self, id: str) -> None:
        await self._egress.stop(id)
        await self._models.stop(id)


def _listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        bind(listener, path)
        os.chmod(path, 0o666)  # its folder is for the owner alone; the container's user must be able to connect
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
