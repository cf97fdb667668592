"""The second container of a Pod, where the agent's commands run, and when it serves.

It shares the Pod's network and one folder with the main container. Its Python comes from the base image: a
container that runs first copies it to a volume which the second one sees (`containers/runtime_copy.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from ...base.errors import StartFailed
from ..base import InstanceSpec, LazySidecar
from ..containers import runtime_copy
from ..containers.container_plan import SHARED, SIDECAR_RUN, TEMPORARY, ContainerPlan, image_of
from ..containers.ready_log import ReadyLog
from ..containers.sidecar_plan import TREE, image_of_sidecar, sidecar_variables
from ..ready_lines import read_ready
from .cluster_client import Cluster
from .pod_manifest import container_of, merged_variables, mount
from .pod_templates import DUAL, SECOND, SECOND_SECURITY, template_name

COPIES = "runtime"
"""The name of the container that copies the runtime."""
_TAIL_BYTES = 4096
_MEMORY_BYTES = _STORAGE_BYTES = 64 << 20
"""What is kept for it at most."""


def with_sidecar(spec: InstanceSpec) -> InstanceSpec:
    """As published: the second container of the template `dualContainer` has the environment's own image, unless a
    datasource names another."""
    if template_name(spec.pod_template) != DUAL or spec.sidecar:
        return spec
    return replace(spec, sidecar=spec.image or LazySidecar())


def add_sidecar(pod: dict[str, Any], plan: ContainerPlan, spec: InstanceSpec, base_image: str) -> None:
    """Fill in the second container, and the one that copies the runtime for it."""
    inside = pod["spec"]
    base = image_of(replace(spec, image=""), base_image)
    main, second = container_of(inside, "main"), container_of(inside, SECOND)
    pull = main.get("imagePullPolicy", "IfNotPresent")
    _add_copying(inside, main, base, pull)
    second["image"] = image_of_sidecar(spec.sidecar, base)
    second.setdefault("imagePullPolicy", pull)
    second["command"] = runtime_copy.command()
    second.pop("args", None)
    second["env"] = merged_variables(second.get("env"), sidecar_variables(spec))
    second.setdefault("securityContext", SECOND_SECURITY)
    second["resources"] = _resources(plan, second.get("resources"))
    mount(inside, second, "runtime", {"emptyDir": {}}, TREE, is_writable=False)
    mount(inside, second, "sidecar", {"emptyDir": {}}, SIDECAR_RUN)
    mount(inside, main, "sidecar", {"emptyDir": {}}, SIDECAR_RUN, is_writable=False)
    for container in (main, second):
        mount(inside, container, "shared", {"emptyDir": {}}, SHARED)


def _add_copying(inside: dict[str, Any], main: dict[str, Any], image: str, pull: str) -> None:
    copying: dict[str, Any] = {
        "name": COPIES,
        "image": image,
        "imagePullPolicy": pull,
        "command": ["python3", "-P", "-m", runtime_copy.MODULE, f"{TREE}/"],
        "securityContext": {**main.get("securityContext", {}), "readOnlyRootFilesystem": True},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    mount(inside, copying, "runtime", {"emptyDir": {}}, TREE)
    mount(inside, copying, "temporary", {"emptyDir": {}}, TEMPORARY)
    inside["initContainers"] = [
        *(each for each in inside.get("initContainers") or () if each.get("name") != COPIES),
        copying,
    ]


def _resources(plan: ContainerPlan, own: Mapping[str, Any] | None) -> dict[str, dict[str, str]]:
    """As much as the main container may have, and little that is kept for it: mostly it waits."""
    given = plan.limits
    assert given.memory_bytes  # a plan has both always
    assert given.storage_bytes
    limits = {"memory": str(given.memory_bytes), "ephemeral-storage": str(given.storage_bytes)}
    # A request above its limit is refused.
    requests = {
        "cpu": "10m",
        "memory": str(min(_MEMORY_BYTES, given.memory_bytes)),
        "ephemeral-storage": str(min(_STORAGE_BYTES, given.storage_bytes)),
    }
    if given.cpus is not None:
        limits["cpu"] = f"{round(given.cpus * 1000)}m"
        requests["cpu"] = f"{min(10, round(given.cpus * 1000))}m"
    template = {key: dict((own or {}).get(key) or {}) for key in ("limits", "requests")}
    return {"limits": {**limits, **template["limits"]}, "requests": {**requests, **template["requests"]}}


@contextlib.asynccontextmanager
async def served(spec: InstanceSpec, serves: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Leave the block once the sidecar serves, too, where the instance has one."""
    if not spec.sidecar:
        yield
        return
    serving = asyncio.ensure_future(serves())
    try:
        yield
        await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def sidecar_ready(cluster: Cluster, pod: str, what: str) -> None:
    """Return when the runtime in the second container, which has started, says that it serves."""
    log, printed = ReadyLog(), b""
    async with cluster.log(pod, SECOND, follow=True) as pieces:
        async for piece in pieces:
            printed = (printed + log.feed(piece))[-_TAIL_BYTES:]
            if log.line is not None:
                break
    if log.line is None:
        text = printed.decode(errors="replace").strip()
        raise StartFailed(f"the sidecar of {what} ended before it was ready; it printed last:\n{text}")
    await read_ready(log.said, f"the sidecar of {what}")
