"""Workspaces in which several instances work: each is a volume in the folder of the instance that it is of.

A volume has a fixed size, and its files belong to no user of the host: each instance is shown them as its own
(`isolation/sandbox/lasting_folders.py`). It is mounted in the namespaces of its instances alone, and nothing else
of one is seen by another. It ends with the instance that it is of, which outlives the others.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...base.errors import StartFailed, Unsupported
from ...isolation.sandbox import volumes
from ..base import DEFAULT_LIMITS, InstanceSpec
from ..folder import InstanceFolder
from ..instance_state import InstanceState
from . import gvisor

_NAME = "workspace.volume"


async def workspace_of(spec: InstanceSpec, folder: InstanceFolder) -> Path | None:
    """The volume in which the instance works, made now if it is its own; None where it shares none."""
    if not (spec.works_in or spec.shares_workspace):
        return None
    if spec.isolation == gvisor.NAME:
        raise Unsupported("an instance in gVisor cannot share a workspace; leave out 'workspace' in 'uses'")
    if why := volumes.why_not():
        raise Unsupported(f"instances cannot share a workspace here: {why}")
    place = _of_another(spec.works_in, folder) if spec.works_in else await _made(spec, folder)
    folder.write_state(InstanceState(workspace=str(place)))
    return place


def _of_another(id: str, folder: InstanceFolder) -> Path:
    place = InstanceFolder(folder.path.parent, id).read_state().workspace
    if place is None:
        raise StartFailed(f"instance {id!r}, whose workspace it would share, has ended")
    return Path(place)


async def _made(spec: InstanceSpec, folder: InstanceFolder) -> Path:
    place = folder.path / _NAME
    size = spec.limits.storage_bytes or DEFAULT_LIMITS.storage_bytes or volumes.LEAST_BYTES
    making = asyncio.create_task(asyncio.to_thread(volumes.make, place, size))
    try:
        await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait({making})  # it would write to a folder that is being removed
        raise
    except FileNotFoundError:
        raise StartFailed(f"the instance of {spec.environment!r} was destroyed while it started") from None
    except OSError as error:
        raise StartFailed(f"no workspace of {size} bytes can be made: {error.strerror}") from error
    return place
