"""The docker engine: one container an instance, made by a Docker or podman engine on this machine.

The runtime listens on a unix socket in a folder that container and gateway share, so an instance needs no network
to be reached; the gateway connects by another name of that socket, which the container cannot change. What is
known of an instance is in its folder `<home>/run/instances/<id>/`, as with other engines; whether it lives is what
the engine of containers says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.addresses import Origin
from ...base.config import Project
from ...base.errors import Conflict, InvalidRequest, StartFailed, Unavailable, Unsupported
from ...base.supervision import to_the_end
from ...isolation.sandbox import protocol
from ..base import (
    Address,
    FileEntry,
    InstanceSpec,
)
from ..containers import container_plan
from ..containers.container_labels import INSTANCE, PART
from ..containers.container_plan import (
    BASE_IMAGE,
    RUN,
    SHARED,
    SIDECAR_RUN,
    SOCKET,
    USER,
    WAYS_OUT,
    WORKSPACE,
    Mount,
)
from ..containers.ready_log import ReadyLog
from ..containers.sidecar_plan import image_of_sidecar, refuse_built
from ..endings import Endings
from ..folder import SOCKET_FOLDER, InstanceFolder, is_short_enough, take_socket
from ..instance_state import InstanceState, SidecarProcess
from ..ready_lines import read_ready
from .container_access import FILES, ContainerAccess, container_name
from .container_config import EngineFacts, main_container, sidecar_container
from .container_images import ContainerImages
from .container_programs import LONGEST, SHARED_RUN
from .container_sidecars import RuntimeTrees, make_folders, sidecar_plan
from .docker_api import DockerApi, DockerRefused
from .ways_out import WaysOut

logger = logging.getLogger("aenv.engines.docker")

HOME = "aenv.home"
"""The label that tells containers of one home from those of others."""
_TAIL_BYTES = 4096
_AGAIN = 1.0  # second after which an engine of containers that was away is asked again
_OUT = "out"

Entries = list[FileEntry]  # the class below has a method `list`
Ids = list[str]
Containers = list[dict[str, Any]]


class DockerEngine(ContainerAccess):
    """Makes instances as containers. `host` is as in DOCKER_HOST; `network` that of instances with a full one."""

    name = "docker"
    isolation: tuple[str, ...] = (
        "a container",
        "no root",
        "no capabilities",
        "no new privileges",
        "a filter of system calls",
        "a read-only root",
    )
    summary = ", ".join(isolation)

    def __init__(self, home: Path, host: str, *, base_image: str = "", network: str = "bridge") -> None:
        # Root gives its files to the user inside; any other user can only be that user.
        owner = USER if os.geteuid() == 0 else os.geteuid()
        super().__init__(home.expanduser().absolute() / "run" / "instances", DockerApi(host), owner)
        self._key = hashlib.sha256(os.fsencode(home.expanduser().absolute())).hexdigest()[:16]
        self._base_image, self._network = base_image or BASE_IMAGE, network
        self._images = ContainerImages(self._api)
        self._trees = RuntimeTrees(self._api, home.expanduser().absolute() / "docker" / "runtimes")
        self._ways_out = WaysOut()
        self._ending = Endings()
        self._owed: set[str] = set()
        """Instances of whose end the engine of containers has not been told yet, as when it is away."""
        self._facts: EngineFacts | None = None

    async def __aenter__(self) -> DockerEngine:
        """Unavailable, with what to do, when no engine of containers answers."""
        await self._known()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Instances live on."""
        await self._relays.close()
        await self._ways_out.close()
        await self._api.close()

    def describe_rootfs(self, project: Project) -> str:
        return f"the image {project.image or self._base_image!r}, read-only"

    # Starting

    async def create(self, spec: InstanceSpec) -> Address:
        facts = await self._known()
        _refuse(spec, facts)
        folder = InstanceFolder(self._root, spec.id)
        await self._have_images(spec)
        if spec.id in self._owed:
            await self._end(spec.id)
        try:
            folder.make(workspace=False)
        except FileExistsError:
            raise Conflict(f"instance {spec.id!r} exists already") from None
        try:
            async with asyncio.timeout(spec.start_timeout):
                return await self._start(spec, folder, facts)
        except TimeoutError:
            printed = await self._printed(spec.id)
            await to_the_end(self._end(spec.id))
            raise StartFailed(
                f"the instance of {spec.environment!r} was not ready within {spec.start_timeout:g} s{printed}"
            ) from None
        except BaseException:
            await to_the_end(self._end(spec.id))
            raise

    async def _start(self, spec: InstanceSpec, folder: InstanceFolder, facts: EngineFacts) -> Address:
        what = f"the instance of {spec.environment!r}"
        self._make_folders(folder)
        if spec.storage:
            spec.storage.mkdir(parents=True, exist_ok=True, mode=0o700)
            await asyncio.to_thread(self._give_all, spec.storage)
        spec = self._ways_out.opened(spec, folder, folder.path / _OUT)
        began = replace_mounts(spec, folder, self._base_image)
        labels = {**began.labels, HOME: self._key}
        made = main_container(replace(began, labels=labels), spec, facts, self._owner)
        container = container_name(spec.id)
        try:
            await self._api.call("POST", "/containers/create", made, name=container)
            if began.limits.gpus:
                await self._must_have_gpus(container, what)
            if spec.id in self._ending or not folder.exists():
                raise StartFailed(f"{what} was destroyed while it started")
            await self._api.call("POST", f"/containers/{container}/start")
        except DockerRefused as error:
            if spec.id in self._ending or not folder.exists():
                raise StartFailed(f"{what} was destroyed while it started") from None
            raise StartFailed(f"{what} cannot be started: {error.message}") from None
        ready = asyncio.ensure_future(self._until_ready(spec, folder, container, what))
        try:
            if spec.sidecar:
                await self._start_sidecar(spec, folder, facts)
            said = await ready
        finally:
            ready.cancel()
            await asyncio.wait({ready})
        state = (await self._api.call("GET", f"/containers/{container}/json"))["State"]
        not_enforced = _not_enforced(spec)
        if spec.id in self._ending or not folder.exists():
            raise StartFailed(f"{what} was destroyed while it started")
        take_socket(folder.socket.parent / SHARED_RUN / "socket", folder.socket)
        pid = int(state["Pid"])
        folder.write_state(
            InstanceState(
                pid=pid,
                environment=spec.environment,
                root=began.image,
                tools=said.tools,
                not_enforced=not_enforced,
            )
        )
        return self._address(folder, pid)

    async def _must_have_gpus(self, container: str, what: str) -> None:
        """StartFailed where the engine of containers, as a podman may, has left out the request without a word."""
        made = await self._api.call("GET", f"/containers/{container}/json")
        if not made["HostConfig"].get("DeviceRequests"):
            raise StartFailed(
                f"{what} cannot be started: the engine of containers at {self._api.host!r} gives no GPUs"
            )

    async def _have_images(self, spec: InstanceSpec) -> None:
        base = container_plan.image_of(replace(spec, image=""), self._base_image)
        if not spec.image or spec.sidecar:
            await self._images.must_have(base)
        for image in {spec.image, image_of_sidecar(spec.sidecar, base) if spec.sidecar else ""} - {"", base}:
            await self._images.pulled(image)

    async def _start_sidecar(self, spec: InstanceSpec, folder: InstanceFolder, facts: EngineFacts) -> None:
        """Start it in the network of the main container; return when it serves."""
        what = f"the sidecar of {spec.environment!r}"
        base = container_plan.image_of(replace(spec, image=""), self._base_image)
        tree = await self._trees.of(base)
        image = image_of_sidecar(spec.sidecar, base)
        plan = sidecar_plan(spec, image, tree, folder.path / "sidecar", folder.path / "shared")
        made = sidecar_container(
            replace(plan, labels={**plan.labels, HOME: self._key}), container_name(spec.id), facts
        )
        container = container_name(spec.id, "sidecar")
        try:
            await self._api.call("POST", "/containers/create", made, name=container)
            await self._api.call("POST", f"/containers/{container}/start")
        except DockerRefused as error:
            raise StartFailed(f"{what} cannot be started: {error.message}") from None
        await self._until_ready(spec, folder, container, what)
        folder.write_state(InstanceState(sidecar=SidecarProcess(0, None)))

    async def _until_ready(
        self, spec: InstanceSpec, folder: InstanceFolder, container: str, what: str
    ) -> protocol.Ready:
        log, printed = ReadyLog(), b""
        with contextlib.suppress(DockerRefused):
            async with contextlib.aclosing(self._output(container, follow=True)) as output:
                async for piece in output:
                    printed = (printed + log.feed(piece))[-_TAIL_BYTES:]
                    if log.line is not None:
                        break
        if log.line is None:
            if spec.id in self._ending or not folder.exists():
                raise StartFailed(f"{what} was destroyed while it started")
            raise StartFailed(f"{what} ended before it was ready{_tail(printed)}")
        return await read_ready(log.said, what)

    # Ending

    async def destroy(self, id: str) -> None:
        """End the instance and everything it started, and remove its folder."""
        with contextlib.suppress(InvalidRequest):  # no instance has such an id
            await self._end(id)

    async def sweep(self) -> None:
        """End what could not be ended when it should have been."""
        with contextlib.suppress(Unavailable):  # still away
            while self._owed:
                await self._end(next(iter(self._owed)))

    async def _end(self, id: str) -> None:
        await self._ending.end(id, lambda: self._clear(id))

    async def _clear(self, id: str) -> None:
        folder = InstanceFolder(self._root, id)
        self._owed.add(id)
        await self._relays.stop(id)
        await self._ways_out.stop(id)
        await self._remove(container_name(id, "sidecar"))
        await self._remove(container_name(id))
        if folder.exists():
            await asyncio.to_thread(folder.remove)
            for part in ("sidecar", ""):  # one whose create was on its way
                await self._remove(container_name(id, part))
        self._owed.discard(id)

    async def _remove(self, container: str) -> None:
        try:
            await self._delete(container)
        except DockerRefused:
            # podman cannot remove one that ends at this moment.
            with contextlib.suppress(DockerRefused):
                await self._api.call("POST", f"/containers/{container}/wait")
            await self._delete(container)

    async def _delete(self, container: str) -> None:
        try:
            await self._api.call("DELETE", f"/containers/{container}", force=1, v=1)
        except DockerRefused as error:
            if error.answered == 409:  # another one removes it now
                with contextlib.suppress(DockerRefused):
                    await self._api.call("POST", f"/containers/{container}/wait", condition="removed")
            elif error.answered != 404:
                raise

    # What there is

    async def running(self) -> dict[str, Address]:
        """The instances that live and are ready, also those of other engine objects on this home."""
        found = {}
        living = await self._containers(status=["running", "paused"])
        parts = {(container["Labels"].get(INSTANCE, ""), container["Labels"].get(PART)) for container in living}
        for id in sorted(id for id, part in parts if part == "main"):
            with contextlib.suppress(InvalidRequest):
                folder = InstanceFolder(self._root, id)
                state = folder.read_state()
                is_whole = state.sidecar is None or (id, "sidecar") in parts
                if state.tools is not None and state.pid is not None and is_whole:
                    found[id] = self._address(folder, state.pid)
                    self._ways_out.reopen(folder, folder.path / _OUT)
        return found

    async def leftovers(self) -> Ids:
        """Those that are not running: their container has ended, or they never became ready."""
        running = await self.running()
        here = {path.name for path in self._root.glob("*/")}
        here |= {container["Labels"].get(INSTANCE, "") for container in await self._containers()}
        return sorted(here - set(running))

    async def ended(self, id: str) -> str:
        """Return, with the reason, when the instance has ended by itself (or has been destroyed)."""
        while True:
            try:
                return await self._end_reason(id)
            except Unavailable:  # an engine of containers restarts, and containers may outlive that
                await asyncio.sleep(_AGAIN)

    async def _end_reason(self, id: str) -> str:
        container = container_name(id)
        try:
            code = await self._exit_code(id)
            if code is None:
                return "its sidecar ended"
            state = (await self._api.call("GET", f"/containers/{container}/json"))["State"]
        except DockerRefused:
            return "its container was removed"
        if state.get("OOMKilled"):
            return "it used more memory than its limit"
        return (
            f"its process was killed by signal {code - 128}"
            if code > 128
            else f"its process exited with code {code}"
        )

    async def _exit_code(self, id: str) -> int | None:
        """Wait until one part has ended; None when it is the sidecar."""
        parts = {"": container_name(id)}
        if self._has_sidecar(id):
            parts["sidecar"] = container_name(id, "sidecar")
        waits = {
            part: asyncio.ensure_future(self._api.call("POST", f"/containers/{container}/wait"))
            for part, container in parts.items()
        }
        try:
            await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
            return int(waits[""].result()["StatusCode"]) if waits[""].done() else None
        finally:
            for task in waits.values():
                task.cancel()
            await asyncio.gather(*waits.values(), return_exceptions=True)

    # Parts

    async def _known(self) -> EngineFacts:
        """What the engine of containers says of itself, asked for once."""
        if self._facts is None:
            told = await self._api.call("GET", "/info")
            options = " ".join(told.get("SecurityOptions") or ())
            runtimes = frozenset(told.get("Runtimes") or ())
            self._facts = EngineFacts("rootless" in options, runtimes, self._network)
        return self._facts

    async def _containers(self, **filters: Ids) -> Containers:
        wanted = {"label": [f"{HOME}={self._key}"], **filters}
        found: Containers = await self._api.call("GET", "/containers/json", all=1, filters=wanted)
        return found

    async def _printed(self, id: str) -> str:
        """What a container has printed last, for an error."""
        log, printed = ReadyLog(), b""
        with contextlib.suppress(DockerRefused):
            async for piece in self._output(container_name(id)):
                printed = (printed + log.feed(piece))[-_TAIL_BYTES:]
        return _tail(printed)

    def _address(self, folder: InstanceFolder, pid: int) -> Address:
        state = folder.read_state()
        origin = Origin("localhost", socket=str(folder.socket))
        return Address(origin, pid, state.tools or [], state.root or "", state.not_enforced or ())

    def _make_folders(self, folder: InstanceFolder) -> None:
        """Those of the instance's own; that of the sockets lies elsewhere where their paths would be too long."""
        (folder.path / _OUT).mkdir(mode=0o755)
        place = folder.path
        if not is_short_enough(str(place / LONGEST)):
            is_made = not folder.holds_socket
            place = folder.socket.parent if is_made else Path(tempfile.mkdtemp(prefix=SOCKET_FOLDER))
        folder.write_state(InstanceState(socket=str(place / "socket")))
        files = folder.path / FILES
        for own in (files, files / "workspace", files / "aside", place / SHARED_RUN):
            own.mkdir(mode=0o700)
            self._give(own)

    def _give(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self._owner, self._owner)

    def _give_all(self, folder: Path) -> None:
        """Storage that another engine, or the operator, has filled as another user."""
        if os.geteuid() != 0:
            return
        self._give(folder)
        for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(name, self._owner, self._owner, dir_fd=descriptor, follow_symlinks=False)


def replace_mounts(spec: InstanceSpec, folder: InstanceFolder, base_image: str) -> container_plan.ContainerPlan:
    """The plan of the main container, with the folders of the instance itself."""
    plan = container_plan.plan(spec, base_image=base_image, socket=SOCKET)
    if spec.sidecar:
        run, shared = make_folders(folder.path)
        plan = replace(
            plan, mounts=(Mount(run, SIDECAR_RUN), Mount(shared, SHARED, is_writable=True), *plan.mounts)
        )
    own = (
        Mount(folder.path / FILES / "workspace", WORKSPACE, is_writable=True),
        Mount(folder.socket.parent / SHARED_RUN, RUN, is_writable=True),
        Mount(folder.path / _OUT, WAYS_OUT),
    )
    return replace(plan, mounts=(*own, *plan.mounts))


def _refuse(spec: InstanceSpec, facts: EngineFacts) -> None:
    if spec.isolation and "runsc" not in facts.runtimes:
        raise Unsupported(
            f"isolation {spec.isolation!r} is not available here: the Docker engine has no runtime 'runsc'"
        )
    refuse_built(spec, "docker")


def _not_enforced(spec: InstanceSpec) -> tuple[str, ...]:
    if spec.limits.storage_bytes is None:
        return ()
    return ("storage_bytes: the workspace is a folder of the host; only /tmp is limited",)


def _tail(printed: bytes) -> str:
    text = printed.decode(errors="replace").strip()
    return f"; it printed last:\n{text}" if text else " and printed nothing"
