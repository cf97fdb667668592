"""The Kubernetes engine: an instance is a Pod, reached by the Pod's address.

Everything about an instance is noted on its Pod, so that every gateway of an installation finds, reaches and ends
every instance, and a gateway that starts anew needs nothing but the cluster. An environment without an image runs
in the base image: its Pod waits, and is sent the files (`pod_files.py`). One with an image starts by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
from collections.abc import Collection, Mapping
from typing import Any

from ...base.addresses import Origin
from ...base.config import Project
from ...base.errors import AEnvError, Conflict, NotFound, StartFailed, Unsupported
from ...base.pod_claim import PodClaim
from ...base.supervision import to_the_end
from ...isolation.sandbox import protocol
from ..base import Address, InstanceSpec
from ..containers.container_plan import PORT, PROJECT, REQUIREMENTS, VARIABLES_FILE, WORKSPACE, plan
from ..containers.sidecar_plan import refuse_built
from ..endings import Endings
from ..ready_lines import read_ready
from . import pod_files, pod_notes, pod_state
from .cluster_client import Cluster, ConfigMaps, Pods
from .gateway_leases import GatewayLeases
from .image_readiness import first_answer, tools_of
from .kubernetes_options import KubernetesOptions
from .kubernetes_services import KeepsPodServices, PodServices
from .pod_access import PodAccess
from .pod_creation import create_once
from .pod_manifest import (
    INSTANCE,
    KIND,
    NOT_ENFORCED,
    OWNER,
    RUNNING,
    SPARE,
    STARTING,
    STATE,
    TOKEN,
    TOOLS,
    PodNames,
    manifest,
)
from .pod_network import PodNetworks
from .pod_sidecar import add_sidecar, served, sidecar_ready, with_sidecar
from .pod_state import Pod
from .pod_templates import MAIN, SECOND, PodTemplates
from .pod_watch import PodWatch, with_label
from .service_manifests import SERVED
from .warm_pods import MAKER, WarmPods

logger = logging.getLogger("aenv.engines.kubernetes")

_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_GRACE = 1  # second between asking an instance to end and ending it
_TELLS_WITHIN = 5.0  # seconds in which an instance says which tools it has
_GONE_WITHIN = 60.0  # seconds; then its node does not answer, and only its record in the cluster can be removed
_STALE = 900.0  # seconds after which a Pod that never became ready belongs to no create


class KubernetesEngine(PodAccess, KeepsPodServices):
    """Makes instances as Pods of one namespace. `async with` begins to watch them, as does the first use."""

    name = "kubernetes"
    isolation: tuple[str, ...] = ("a Pod", "no privileges", "seccomp", "network policies of the cluster")

    def __init__(self, options: KubernetesOptions) -> None:
        super().__init__(Cluster(options.access))
        self._options = options
        self._watch = PodWatch(self._cluster, {OWNER: options.owner})
        self._leases = GatewayLeases(self._cluster, options.owner)
        self._warm = WarmPods(self._watch, self._leases, self._make_spare, self._remove, self._kind_salt)
        self._watch.on_change = self._warm.changed
        self._leases.on_change = self._warm.changed
        self.node = f"{self._cluster.namespace}/{options.owner}"
        self._networks = PodNetworks(self._cluster, options.owner, options.gateways)
        self._services = PodServices(
            self._watch, options.owner, self._service_pod, self._service_claim, options.storage_class
        )
        self._templates: PodTemplates | None = None
        self._exits = contextlib.AsyncExitStack()
        self._beginning = asyncio.Lock()
        self._has_begun = False
        self._ending = Endings()

    @property
    def summary(self) -> str:
        return f"Pods in namespace {self._cluster.namespace!r} of {self._cluster.server}"

    @property
    def _kind_salt(self) -> str:
        return self._options.base_image

    def describe_rootfs(self, project: Project) -> str:
        return f"the image {project.image}" if project.image else f"the base image {self._options.base_image}"

    async def __aenter__(self) -> KubernetesEngine:
        """Unavailable, Forbidden or InvalidRequest, in one line, when instances cannot be made here."""
        try:
            await self._cluster.check()
            await self._begin()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._relays.close()
        await self._exits.aclose()

    async def _begin(self) -> None:
        async with self._beginning:
            if self._has_begun:
                return
            await self._exits.enter_async_context(self._cluster)
            self._templates = await self._load_templates()
            await self._exits.enter_async_context(self._leases)
            await self._networks.keep()
            await self._exits.enter_async_context(self._watch)
            await self._exits.enter_async_context(self._warm)
            await self._exits.enter_async_context(self._services)
            self._has_begun = True
        await self._watch.listed()

    async def _load_templates(self) -> PodTemplates:
        name = self._options.templates
        if not name:
            return PodTemplates()
        try:
            found = await self._cluster.get(ConfigMaps, name)
        except NotFound:
            where = f"namespace {self._cluster.namespace!r}"
            raise NotFound(f"no ConfigMap {name!r} in {where}, for --kube-templates") from None
        return PodTemplates(found.get("data"), f"ConfigMap {name!r}")

    # Engine

    async def create(self, spec: InstanceSpec) -> Address:
        spec = with_sidecar(spec)
        self._check(spec)
        await self._begin()
        what = f"the instance of {spec.environment!r}"
        spare = await self._warm.take(spec, self._life(spec))
        try:
            async with asyncio.timeout(spec.start_timeout):
                if spare:
                    return await self._fill(spec, spare, what)
                return await self._make(spec, what)
        except TimeoutError as error:
            waited_for = "".join(f": {note}" for note in getattr(error.__cause__, "__notes__", ()))
            raise StartFailed(f"{what} was not ready within {spec.start_timeout:g} s{waited_for}") from None

    async def destroy(self, id: str) -> None:
        """Return when nothing of it is left in the cluster."""
        if _ID.match(id):
            await self._ending.end(id, lambda: self._destroy(id))

    async def running(self) -> dict[str, Address]:
        await self._begin()
        pods, _ = await self._cluster.list_with_version(Pods, {OWNER: self._options.owner, STATE: RUNNING})
        living = [pod for pod in pods if not pod_state.end_reason(pod) and pod_state.is_started(pod)]
        addresses = await asyncio.gather(*(self._address(pod) for pod in living))
        return {_instance(pod): address for pod, address in zip(living, addresses, strict=True)}

    async def leftovers(self) -> list[str]:
        """Those that do not run: their Pod has ended, or never became ready."""
        await self._begin()
        pods, _ = await self._cluster.list_with_version(Pods, {OWNER: self._options.owner})
        running = await self.running()
        return [id for pod in pods if (id := _instance(pod)) and id not in running]

    async def ended(self, id: str) -> str:
        """Return, with the reason, when the instance has ended by itself (or has been destroyed)."""
        await self._begin()
        found = with_label(self._watch.pods.values(), INSTANCE, id) if _ID.match(id) else []
        if not found:
            return "its Pod is gone"
        return await self._watch.until(found[0]["metadata"]["name"], pod_state.end_judge())

    async def sweep(self) -> None:
        """Remove Pods that no create waits for and no gateway could know: never ready, and old."""
        await self._begin()
        await self._leases.sweep()
        await self._networks.keep()
        pods, _ = await self._cluster.list_with_version(Pods, {OWNER: self._options.owner})
        await self._warm.sweep(pods)
        for pod in pods:
            # One with an id is ended by what knows its record; and it may be as old as the spare Pod that it was.
            if not _instance(pod) and _state(pod) not in (SPARE, SERVED) and pod_state.age(pod) > _STALE:
                await self._remove(pod["metadata"]["name"])

    # Spare ones

    async def keep_warm(self, spec: InstanceSpec, count: int) -> None:
        spec = with_sidecar(spec)
        self._check(spec)
        if spec.image and count:
            raise Unsupported(
                f"the image of {spec.environment!r} starts by itself: no Pod of it can be kept ready"
            )
        await self._begin()
        self._warm.keep(spec, count)

    def warm(self) -> Mapping[str, int]:
        return self._warm.ready()

    # Services, which the cluster looks after

    def _service_pod(self, spec: InstanceSpec) -> dict[str, Any]:
        return self._manifest(spec, spec.id, "" if spec.image else secrets.token_urlsafe(24))

    def _service_claim(self, spec: InstanceSpec, token: str, files_bytes: int) -> PodClaim:
        return self._claim(spec, token, is_spare=False, files_bytes=files_bytes)

    # With other gateways

    async def join(self, installation: str, place: str) -> bool:
        await self._begin()
        return await self._leases.join(installation, place)

    def present(self) -> Collection[str]:
        made = [pod for pod in self._watch.pods.values() if _state(pod) in (STARTING, RUNNING)]
        return {id for pod in made if (id := _instance(pod))}

    # Making

    def _check(self, spec: InstanceSpec) -> None:
        """What must not be ignored is refused."""
        if spec.isolation:
            raise Unsupported(
                f"the kubernetes engine isolates by runtimeClassName of a podTemplate, not by {spec.isolation!r}"
            )
        if spec.network.kind == "egress":
            raise Unsupported("the kubernetes engine cannot limit an instance to hosts; write 'none' or 'full'")
        if spec.model:
            raise Unsupported("the kubernetes engine has no way to a model from an instance")
        refuse_built(spec, "kubernetes")
        if spec.image and (spec.data or spec.folders):
            raise Unsupported("the kubernetes engine sends no data to an environment with an image; put it there")

    def _manifest(self, spec: InstanceSpec, name: str, token: str) -> dict[str, Any]:
        assert self._templates
        template = self._templates.get(spec.pod_template, is_dual=bool(spec.sidecar))
        made = plan(spec, base_image=self._options.base_image)
        names = PodNames(name, self._options.owner, token, self._life(spec))
        storage = self._options.storage_volume(spec) if spec.storage else None
        pod = manifest(template, made, spec, names, storage)
        if spec.sidecar:
            add_sidecar(pod, made, spec, self._options.base_image)
        return pod

    def _life(self, spec: InstanceSpec) -> float | None:
        return None if spec.ttl is None else max(self._options.longest_life, 2 * spec.ttl)

    async def _make(self, spec: InstanceSpec, what: str) -> Address:
        token = "" if spec.image else secrets.token_urlsafe(24)
        try:
            pod = await create_once(self._cluster, self._watch, self._manifest(spec, spec.id, token))
        except Conflict:
            raise Conflict(f"instance {spec.id!r} exists already") from None
        self._watch.learn(pod)
        return await self._started(spec, spec.id, token, what)

    async def _started(self, spec: InstanceSpec, name: str, token: str, what: str) -> Address:
        """The address of a Pod that exists, once it serves. A Pod that does not is removed."""
        try:
            async with served(spec, lambda: self._sidecar_serves(name, what)):
                host = await self._container_started(name, what)
                if token:
                    said = await self._claimed(spec, name, host, token, what, is_spare=False)
                    tools = said.tools
                else:
                    tools = await self._unless_ended(name, what, self._answers(host))
            return await self._mark(name, RUNNING, tools, spec)
        except BaseException:
            await to_the_end(self._remove(name, grace=0))
            raise

    async def _fill(self, spec: InstanceSpec, pod: Pod, what: str) -> Address:
        """Make an instance of a spare Pod that is ours now."""
        name = pod["metadata"]["name"]
        try:
            said = self._claim(spec, pod["metadata"]["annotations"][TOKEN], is_spare=False)
            line = await self._unless_ended(name, what, pod_files.claim(pod_state.address(pod), said, None))
            tools = (await self._read(line, name, what)).tools
            return await self._mark(name, RUNNING, tools, spec)
        except BaseException:
            await to_the_end(self._remove(name, grace=0))
            raise

    async def _make_spare(self, spec: InstanceSpec, name: str, kind: str) -> None:
        """Make a Pod that has loaded the environment and waits; for `WarmPods`."""
        token = secrets.token_urlsafe(24)
        pod = self._manifest(spec, name, token)
        labels = pod["metadata"]["labels"]
        labels.pop(INSTANCE, None)
        labels[KIND] = kind
        pod["metadata"]["annotations"][MAKER] = self._leases.name
        what = f"a spare instance of {spec.environment!r}"
        self._watch.learn(await create_once(self._cluster, self._watch, pod))
        try:
            async with asyncio.timeout(spec.start_timeout):
                async with served(spec, lambda: self._sidecar_serves(name, what)):
                    host = await self._container_started(name, what)
                    said = await self._claimed(spec, name, host, token, what, is_spare=True)
                await self._mark(name, SPARE, said.tools)
        except BaseException:
            await to_the_end(self._remove(name, grace=0))
            raise

    async def _sidecar_serves(self, name: str, what: str) -> None:
        await self._container_started(name, what, SECOND)
        await self._unless_ended(name, what, sidecar_ready(self._cluster, name, what))

    async def _container_started(self, name: str, what: str, container: str = MAIN) -> str:
        """The Pod's address, as soon as the container runs."""

        def judge(pod: Pod | None) -> tuple[str, str] | None:
            if reason := _end_of(pod):
                return "", reason
            assert pod
            return (pod_state.address(pod), "") if pod_state.is_started(pod, container) else None

        try:
            host, reason = await self._watch.until(name, judge)
        except asyncio.CancelledError as error:
            if words := pod_state.waits_for(self._watch.pods.get(name)):
                logger.warning("%s does not start: %s", what, words)
                error.add_note(words)  # the Pod is gone when the time that is over is put into words
            raise
        if reason:
            raise StartFailed(f"{what} cannot start: {reason}{await self._printed(name)}")
        return host

    async def _claimed(
        self, spec: InstanceSpec, name: str, host: str, token: str, what: str, *, is_spare: bool
    ) -> protocol.Ready:
        with contextlib.ExitStack() as stack:
            files = await asyncio.to_thread(stack.enter_context, pod_files.packed(spec))
            said = self._claim(spec, token, is_spare=is_spare, files_bytes=files.size)
            line = await self._unless_ended(name, what, pod_files.claim(host, said, files))
        return await self._read(line, name, what)

    def _claim(self, spec: InstanceSpec, token: str, *, is_spare: bool, files_bytes: int = 0) -> PodClaim:
        return PodClaim(
            token,
            files_bytes=files_bytes,
            variables={} if is_spare else claim_variables(spec),
            arguments=spec.arguments,
            project=PROJECT,
            requirements=REQUIREMENTS if spec.requirements else "",
            workspace=WORKSPACE,
            variables_file="" if is_spare else VARIABLES_FILE,
            keep_history=spec.keep_history,
            drain=spec.drain,
            is_spare=is_spare,
        )

    async def _read(self, line: bytes, name: str, what: str) -> protocol.Ready:
        if not line.endswith(b"\n") and len(line) <= protocol.MAX_READY_BYTES:
            reason = await self._watch.until(name, _end_of)
            raise StartFailed(f"{what} ended before it was ready: {reason}{await self._printed(name)}")
        return await read_ready(lambda: protocol.ready(line), what)

    async def _answers(self, host: str) -> list[dict[str, Any]]:
        origin = Origin(host, PORT)
        await first_answer(origin)
        return await tools_of(origin)

    async def _unless_ended(self, name: str, what: str, work: Any) -> Any:
        """The result of the work; StartFailed as soon as the Pod ends first."""
        working = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._watch.until(name, _end_of))
        try:
            await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise StartFailed(f"{what} ended before it was ready: {ending.result()}{await self._printed(name)}")
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.gather(working, ending, return_exceptions=True)

    async def _mark(
        self, name: str, state: str, tools: list[dict[str, Any]], spec: InstanceSpec | None = None
    ) -> Address:
        """Note on the Pod what it is now; every gateway reads it there."""
        limits = pod_notes.not_enforced(spec, self._networks.problem) if spec else ()
        note = {TOOLS: pod_notes.pack(tools), NOT_ENFORCED: json.dumps(limits) if limits else None}
        pod = await self._cluster.patch(Pods, name, {"metadata": {"labels": {STATE: state}, "annotations": note}})
        if pod["metadata"].get("deletionTimestamp"):
            raise StartFailed("its Pod was deleted while it started")
        self._watch.learn(pod)
        return _located(pod, tools)

    # Finding and ending

    async def _find(self, id: str) -> Pod:
        if _ID.match(id):
            await self._begin()
            known = with_label(with_label(self._watch.pods.values(), INSTANCE, id), STATE, RUNNING)
            if known:
                return known[0]
            labels = {OWNER: self._options.owner, INSTANCE: id, STATE: RUNNING}
            pods, _ = await self._cluster.list_with_version(Pods, labels)
            if pods:
                return pods[0]
            replica = self._watch.pods.get(id)
            if replica and _state(replica) == SERVED:
                return replica
        raise NotFound(f"instance {id!r} not found")

    async def _address(self, pod: Pod) -> Address:
        tools = pod_notes.unpack(pod["metadata"].get("annotations", {}).get(TOOLS))
        if tools is None:
            try:
                async with asyncio.timeout(_TELLS_WITHIN):
                    tools = await tools_of(Origin(pod_state.address(pod), PORT))
            except (AEnvError, OSError, TimeoutError) as error:  # it must not keep the gateway from the others
                logger.warning("instance %s does not tell its tools now: %s", _instance(pod), error)
                tools = []
        return _located(pod, tools)

    async def _destroy(self, id: str) -> None:
        await self._begin()
        await self._relays.stop(id)
        pods, _ = await self._cluster.list_with_version(Pods, {OWNER: self._options.owner, INSTANCE: id})
        await asyncio.gather(*(self._remove(pod["metadata"]["name"]) for pod in pods))

    async def _remove(self, name: str, grace: int = _GRACE) -> None:
        """Return when the cluster has no such Pod any more."""
        # With a grace the node must agree, which some take 40 s for, although there is nothing to end.
        is_empty = name in self._watch.pods and pod_state.cannot_run(self._watch.pods[name])
        try:
            await self._cluster.delete(Pods, name, grace=0 if is_empty else max(grace, 1))
        except NotFound:
            self._watch.forget(name)
            return
        try:
            async with asyncio.timeout(_GONE_WITHIN):
                await self._watch.until(name, lambda pod: True if pod is None else None)
        except TimeoutError:
            logger.warning("the node of Pod %s does not answer; its record is removed", name)
            with contextlib.suppress(NotFound):
                await self._cluster.delete(Pods, name, grace=0)


def claim_variables(spec: InstanceSpec) -> dict[str, str]:
    """Those of a container plan, without what only a container's own command reads."""
    found = dict(plan(spec).variables)
    found.pop("AENV_START", None)
    return found


def _end_of(pod: Pod | None) -> str | None:
    return "its Pod was deleted" if pod is None else pod_state.end_reason(pod)


def _instance(pod: Pod) -> str:
    return str(pod["metadata"].get("labels", {}).get(INSTANCE, ""))


def _state(pod: Pod) -> str:
    return str(pod["metadata"].get("labels", {}).get(STATE, ""))


def _located(pod: Pod, tools: list[dict[str, Any]]) -> Address:
    image = next((each["image"] for each in pod["spec"]["containers"] if each["name"] == "main"), "")
    return Address(
        Origin(pod_state.address(pod), PORT), 0, tools, f"the image {image}", pod_notes.noted_limits(pod)
    )
