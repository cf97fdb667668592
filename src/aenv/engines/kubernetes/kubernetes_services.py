"""Services in the cluster: a Deployment looks after the replicas, whichever gateways there are.

A Pod of an environment with an image starts by itself. Another one waits in the base image, as that of an instance
does: each gateway that knows the service may claim it, and the first one does. What is ready, the cluster says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.addresses import Origin
from ...base.errors import AEnvError, Conflict, InvalidRequest, NotFound, Unsupported
from ...base.http1 import Pool
from ...base.pod_claim import PodClaim
from ...base.supervision import Tasks
from ...isolation.sandbox import protocol
from ..base import InstanceSpec, ServiceReplica, WantedService
from ..containers.container_plan import PORT
from . import pod_files, pod_state, service_manifests
from .cluster_client import Claims, Cluster, Deployments, Pods, Services
from .pod_manifest import OWNER, TOKEN
from .pod_sidecar import with_sidecar
from .pod_state import Pod
from .pod_watch import PodWatch, with_label
from .service_manifests import GENERATION, SERVICE, claim_name

logger = logging.getLogger("aenv.engines.kubernetes")

_LOOK_AGAIN = 60.0  # seconds after which a service that has not changed is compared with the cluster
_GONE_WITHIN = 60.0
_ANSWERS_WITHIN = 2.0

MakePod = Callable[[InstanceSpec], dict[str, Any]]
MakeClaim = Callable[[InstanceSpec, str, int], PodClaim]
"""The claim for a replica, of its token and the length of its files."""


@dataclass
class _KnownService:
    wanted: WantedService
    compared_at: float = -math.inf
    """When it was last made sure that the cluster has it so."""
    problem: str = ""


class PodServices:
    """The services of one installation. `async with` claims their Pods."""

    def __init__(
        self, watch: PodWatch, owner: str, make_pod: MakePod, make_claim: MakeClaim, storage_class: str
    ) -> None:
        self._watch = watch
        self._cluster: Cluster = watch.cluster
        self._owner = owner
        self._make_pod = make_pod
        self._make_claim = make_claim
        self._storage_class = storage_class
        self._known: dict[str, _KnownService] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._claimed: set[str] = set()
        """The containers that were claimed, or are."""
        self._problems: dict[str, str] = {}
        """Why the environment did not load, by Pod."""
        self._woken = asyncio.Event()
        self._tasks = Tasks()
        self._pool = Pool()
        self._before = watch.on_change
        watch.on_change = self._pod_changed

    async def __aenter__(self) -> PodServices:
        await self._tasks.__aenter__()
        self._tasks.keep("replicas of services", self._run)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.__aexit__(asyncio.CancelledError)  # its loops never end by themselves
        await self._pool.close()

    # What the gateway asks

    async def keep(self, wanted: WantedService) -> str:
        """Make it so; why the cluster makes no replicas, where it does not."""
        known = self._known.get(wanted.id)
        is_new = known is None or _key(known.wanted) != _key(wanted)
        if known and not is_new and time.monotonic() < known.compared_at + _LOOK_AGAIN:
            return known.problem
        # Known first: a Pod may start before the answer comes.
        known = self._known[wanted.id] = _KnownService(wanted)
        if wanted.spec.storage:
            await self._ensure_claim(wanted)
        made = await self._ensure_deployment(wanted)
        await self._ensure(Services, service_manifests.service(wanted, self._owner))
        known.compared_at, known.problem = time.monotonic(), _problem_of(made)
        self._woken.set()
        return known.problem

    def replicas(self, id: str) -> list[ServiceReplica]:
        found = with_label(self._watch.pods.values(), SERVICE, id)
        ordered = sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
        return [self._replica(pod) for pod in ordered if not _is_ending(pod)]

    async def changed(self, id: str) -> None:
        event = self._changed.setdefault(id, asyncio.Event())
        await event.wait()
        event.clear()

    def forget(self, id: str) -> None:
        """Claim no Pod for it any more."""
        self._known.pop(id, None)

    async def end(self, id: str, storage: Path | None) -> None:
        """Return when nothing of it is left."""
        self._known.pop(id, None)
        deadline = asyncio.get_running_loop().time() + _GONE_WITHIN
        with contextlib.suppress(NotFound):
            if self._is_ours(await self._cluster.get(Services, id), id):
                await self._cluster.delete(Services, id)
        with contextlib.suppress(NotFound):
            if self._is_ours(await self._cluster.get(Deployments, id), id):
                # First without replicas: a controller that has not heard yet that the Deployment is gone would
                # make another Pod in the place of one that ends.
                await self._cluster.patch(Deployments, id, {"spec": {"replicas": 0}})
                await self._pods_gone(id, deadline)
                await self._cluster.delete(Deployments, id)
        await self._pods_gone(id, deadline)
        if storage:
            with contextlib.suppress(NotFound):
                found = await self._cluster.get(Claims, claim_name(storage))
                if found["metadata"].get("labels", {}).get(OWNER) == self._owner:
                    await self._cluster.delete(Claims, claim_name(storage))
        self._changed.pop(id, None)

    async def _pods_gone(self, id: str, deadline: float) -> None:
        """Return when it has no replicas any more, or when their nodes do not answer."""
        try:
            async with asyncio.timeout_at(deadline):
                while pods := with_label(self._watch.pods.values(), SERVICE, id):
                    await asyncio.gather(*(self._pod_gone(pod["metadata"]["name"]) for pod in pods))
        except TimeoutError:
            logger.warning("the nodes of service %s do not answer; its Pods go when they do", id)

    async def _pod_gone(self, name: str) -> None:
        """Return when the cluster has ended it, without the time that it gives to requests under way."""
        # Not before the cluster ends it: until then it would make another one in its place.
        await self._watch.until(name, lambda pod: True if pod is None or _is_ending(pod) else None)
        with contextlib.suppress(NotFound):
            await self._cluster.delete(Pods, name, grace=1)
        await self._watch.until(name, lambda pod: True if pod is None else None)

    # Objects

    async def _ensure_claim(self, wanted: WantedService) -> None:
        made = service_manifests.storage_claim(wanted, self._owner, self._storage_class)
        try:
            found = await self._cluster.get(Claims, made["metadata"]["name"])
        except NotFound:
            with contextlib.suppress(Conflict):  # another gateway was faster
                await self._cluster.create(Claims, made)
            return
        # Of whichever service it was: one has it at a time, which the gateway sees to.
        if found["metadata"].get("labels", {}).get(OWNER) != self._owner:
            name = made["metadata"]["name"]
            raise Conflict(
                f"the claim {name!r} in the cluster is not of this installation; "
                f"label it {OWNER}={self._owner} to give it to services, or choose another 'pvc_name'"
            )

    async def _ensure_deployment(self, wanted: WantedService) -> dict[str, Any]:
        made = service_manifests.deployment(wanted, self._owner, self._make_pod(wanted.spec))
        found = await self._ensure(Deployments, made)
        spec, labels = found["spec"], found["metadata"]["labels"]
        if labels.get(GENERATION) == str(wanted.generation) and spec.get("replicas") == wanted.replicas:
            return found
        if labels.get(GENERATION) != str(wanted.generation):
            change = {
                "metadata": {"labels": made["metadata"]["labels"]},
                "spec": {
                    "replicas": wanted.replicas,
                    # Whole: nothing of the setup before may stay in it.
                    "template": {"$patch": "replace", **made["spec"]["template"]},
                },
            }
            return await self._cluster.patch(Deployments, wanted.id, change, strategic=True)
        return await self._cluster.patch(Deployments, wanted.id, {"spec": {"replicas": wanted.replicas}})

    async def _ensure(self, kind: Any, made: dict[str, Any]) -> dict[str, Any]:
        """The object as it is, made where there is none. Conflict when another installation owns one."""
        name = made["metadata"]["name"]
        try:
            found = await self._cluster.get(kind, name)
        except NotFound:
            try:
                return await self._cluster.create(kind, made)
            except Conflict:  # another gateway was faster
                found = await self._cluster.get(kind, name)
        if not self._is_ours(found, name):
            what = f"{made['kind']} {name!r}"
            raise Conflict(f"the cluster has a {what} of another owner; choose another 'service_name'")
        return found

    def _is_ours(self, found: Mapping[str, Any], id: str) -> bool:
        labels = found["metadata"].get("labels", {})
        return bool(labels.get(OWNER) == self._owner and labels.get(SERVICE) == id)

    # Replicas

    def _replica(self, pod: Pod) -> ServiceReplica:
        metadata = pod["metadata"]
        is_ready = pod_state.is_ready(pod)
        origin = Origin(pod_state.address(pod), PORT) if is_ready else None
        problem = "" if is_ready else self._problems.get(metadata["name"]) or pod_state.end_reason(pod) or ""
        return ServiceReplica(
            metadata["name"],
            int(metadata["labels"].get(GENERATION, "0")),
            origin,
            problem,
            "" if is_ready else pod_state.waits_for(pod) or "it is not ready yet",
        )

    def _pod_changed(self, name: str) -> None:
        self._before(name)
        self._take_note(name)

    def _take_note(self, name: str) -> None:
        pod = self._watch.pods.get(name)
        if pod is None:
            self._problems.pop(name, None)
        of = pod["metadata"].get("labels", {}).get(SERVICE) if pod else None
        for id, event in self._changed.items():
            if pod is None or id == of:
                event.set()
        if of or pod is None:
            self._woken.set()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            running: set[str] = set()
            for id, known in list(self._known.items()):
                for pod in with_label(self._watch.pods.values(), SERVICE, id):
                    container = pod_state.container_id(pod)
                    running.add(container)
                    if container and container not in self._claimed and _is_claimable(pod, known.wanted):
                        self._claimed.add(container)
                        self._tasks.create_task(self._claim(pod, container, known.wanted))
            self._claimed &= running
            await self._woken.wait()

    async def _claim(self, pod: Pod, container: str, wanted: WantedService) -> None:
        """Make a replica of the Pod, unless another gateway has."""
        name, host = pod["metadata"]["name"], pod_state.address(pod)
        spec = replace(wanted.spec, id=name)
        try:
            async with asyncio.timeout(spec.start_timeout):
                if await self._answers(host):
                    return
                with contextlib.ExitStack() as stack:
                    files = await asyncio.to_thread(stack.enter_context, pod_files.packed(spec))
                    token = pod["metadata"]["annotations"][TOKEN]
                    line = await pod_files.claim(host, self._make_claim(spec, token, files.size), files)
            said = await asyncio.to_thread(protocol.ready, line)
            if isinstance(said, protocol.NotReady):
                self._problems[name] = f"it failed to load: {said.error.strip()}"
            else:
                self._problems.pop(name, None)
        except (AEnvError, OSError, TimeoutError, protocol.Broken) as error:
            # It has ended, which the cluster tells; or another gateway was faster, and it serves.
            logger.info("replica %s was not claimed: %s", name, error)
            self._claimed.discard(container)
        finally:
            self._take_note(name)

    async def _answers(self, host: str) -> bool:
        """Whether it is a replica already: one that waits answers with an error."""
        with contextlib.suppress(AEnvError, OSError, TimeoutError):
            async with asyncio.timeout(_ANSWERS_WITHIN):
                head = [("connection", "close")]
                response = await self._pool.request(Origin(host, PORT), "GET", "/health", head)
                await response.read(protocol.MAX_READY_BYTES)
                return response.status == 200
        return False


class KeepsPodServices(ABC):
    """The part of the engine that is `KeepsServices`."""

    _services: PodServices

    async def keep_service(self, wanted: WantedService) -> str:
        spec = with_sidecar(wanted.spec)
        self._check(spec)
        if spec.sidecar and not spec.image:
            # Its Pod is claimed again whenever its main container restarts, while what runs beside goes on: this
            # could listen in its place, and would be told the variables.
            raise Unsupported("on kubernetes a service with a sidecar needs an image; see 'aenv build'")
        await self._begin()
        return await self._services.keep(replace(wanted, spec=spec))

    def service_replicas(self, id: str) -> list[ServiceReplica]:
        return self._services.replicas(id)

    async def service_changed(self, id: str) -> None:
        await self._services.changed(id)

    async def end_service(self, id: str, storage: Path | None) -> None:
        await self._begin()
        await self._services.end(id, storage)

    def forget_service(self, id: str) -> None:
        self._services.forget(id)

    def check_service(self, id: str, storage: Path | None) -> None:
        if id[0].isdigit():
            raise InvalidRequest(f"field 'service_name': the cluster takes no Service {id!r}; begin with a letter")
        if storage:
            claim_name(storage)

    @abstractmethod
    async def _begin(self) -> None:
        """Watch Pods from now on."""

    @abstractmethod
    def _check(self, spec: InstanceSpec) -> None:
        """Unsupported when no Pod can be like that."""


def _is_ending(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _is_claimable(pod: Pod, wanted: WantedService) -> bool:
    metadata = pod["metadata"]
    return (
        TOKEN in metadata.get("annotations", {})
        and metadata["labels"].get(GENERATION) == str(wanted.generation)
        and not _is_ending(pod)
        and pod_state.is_started(pod)
        and not pod_state.is_ready(pod)
    )


def _key(wanted: WantedService) -> tuple[object, ...]:
    return wanted.generation, wanted.replicas, wanted.port


def _problem_of(deployment: Mapping[str, Any]) -> str:
    """Why it makes no Pods, as after a quota was used up."""
    for condition in deployment.get("status", {}).get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f"the cluster makes no replica: {' '.join(str(condition.get('message')).split())[:500]}"
    return ""
