"""The native engine: an instance is a process tree in namespaces of its own, forked from a zygote.

What is written down about an instance is below `<home>/run/instances/<id>/`, so that an engine that is started
after a crash finds what the one before it left. Everything else of it goes with its first process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...base.addresses import Origin
from ...base.config import Project
from ...base.errors import Conflict, InvalidRequest, NotFound, StartFailed, Unavailable, Unsupported
from ...base.limits import allow_many_open_files
from ...base.supervision import to_the_end
from ...isolation import cgroups
from ...isolation.cgroups import owners
from ...isolation.egress import Egress, EgressPolicy
from ...isolation.sandbox import probe, protocol
from ...isolation.sandbox.rootfs import Rootfs
from ..base import DEFAULT_LIMITS, Address, InstanceSpec, LazySidecar, ResourceUsage
from ..descriptors import readable
from ..endings import Endings
from ..folder import InstanceFolder
from ..instance_state import InstanceState
from . import guarantees, gvisor, sidecars
from .assignments import assignment_of, variables_of
from .gvisor import Gvisor
from .inside_access import InsideAccess
from .instance_folders import InstanceFolders, check_does_not_hold
from .kinds import Kind
from .members import go_on, members, stop
from .relays import reopen
from .shared_workspaces import workspace_of
from .sidecars import LazySidecarRootfs, SidecarRootfs, Sidecars
from .spares import NativeInstance, Recipe, Spares
from .stamps import Stamps
from .zygotes import Zygotes, is_in_use, owner_of

_TAIL_BYTES = 4096
_STATUS_COMES = 1.0  # seconds after the end in which the zygote tells how it was

RootOf = Callable[[InstanceSpec], Awaitable[Rootfs]]
Ids = list[str]


class NativeEngine(InsideAccess):
    """Makes isolated instances. `async with` closes what it holds besides; instances live on."""

    name = "native"
    soon = 1.0

    def __init__(
        self,
        home: Path,
        root_of: RootOf,
        *,
        sidecar_rootfs: SidecarRootfs | None = None,
        lazy_sidecar_rootfs: LazySidecarRootfs | None = None,
        describe_root: Callable[[Project], str] | None = None,
    ) -> None:
        self._home = home.expanduser().absolute()
        super().__init__(self._home / "run" / "instances", self._group)
        allow_many_open_files()
        self._missing = probe.missing_isolation()
        self.isolation = guarantees.isolation()
        self.summary = guarantees.summary(self._missing)
        self._describe_root = describe_root
        self._root_of = root_of
        # One name for each home: gateways of other homes have groups of their own.
        self._cgroups = cgroups.find(f"aenv-{hashlib.sha256(os.fsencode(self._home)).hexdigest()[:8]}")
        self._zygotes = Zygotes(self._home / "run" / "zygotes.log", self._cgroups)
        self._folders = InstanceFolders(self._root)
        self._spares = Spares(self._zygotes, self._cgroups, self._folders.refill)
        self._egress = Egress()
        self._gvisor = Gvisor(self._home, self._cgroups)
        self._sidecars = Sidecars(
            self._spares, self._egress, self._instance_relays.models, sidecar_rootfs, lazy_sidecar_rootfs
        )
        self._made: dict[str, NativeInstance] = {}
        self._creating: set[str] = set()
        self._stamps = Stamps()
        self._checked: set[Path] = set()
        """Folders that may be shown to instances."""
        self._kept_warm: dict[Recipe, str] = {}
        """For which environment spare ones are, or were, made ahead."""
        self._ending = Endings()

    async def __aenter__(self) -> NativeEngine:
        await self._egress.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._sidecars.close()
        await self._relays.close()
        await self._spares.close()
        await self._zygotes.close()
        await self._egress.__aexit__(*exc)
        await self._instance_relays.close()
        await asyncio.to_thread(self._cgroups.close)
        await asyncio.to_thread(self._folders.close)

    def describe_rootfs(self, project: Project) -> str:
        return self._describe_root(project) if self._describe_root else "chosen when an instance is created"

    # Starting

    async def create(self, spec: InstanceSpec, *, rehearse: bool | None = None) -> Address:
        """As `Engine.create`. `rehearse`: whether it does what a first call does; None where no other is made."""
        if self._missing:
            raise Unsupported(f"instances cannot be isolated here: {self._missing}")
        try:
            folder, listener = self._folders.take(spec.id)
        except FileExistsError:
            raise Conflict(f"instance {spec.id!r} exists already") from None
        what = f"the instance of {spec.environment!r}"
        self._creating.add(spec.id)
        try:
            with listener:
                rehearse = len(self._creating) == 1 if rehearse is None else rehearse
                return await self._start(spec, folder, listener, what, rehearse=rehearse)
        except TimeoutError:
            printed = _tail(self._made.get(spec.id))
            await to_the_end(self._end(spec.id))
            raise StartFailed(f"{what} was not ready within {spec.start_timeout:g} s{printed}") from None
        except BaseException:
            await to_the_end(self._end(spec.id))
            raise
        finally:
            self._creating.discard(spec.id)

    async def _start(
        self, spec: InstanceSpec, folder: InstanceFolder, listener: socket.socket, what: str, *, rehearse: bool
    ) -> Address:
        root = await self._root_of(spec)
        workspace = await workspace_of(spec, folder)
        recipe = self._recipe(spec, root, workspace)
        in_gvisor = spec.isolation == gvisor.NAME
        is_now = bool(spec.sidecar) and not (in_gvisor or isinstance(spec.sidecar, LazySidecar))
        try:
            sidecar = await self._sidecars.recipe(spec, recipe) if is_now else None
            # From here on: what is made once for many, or fetched, may take longer than any start.
            async with asyncio.timeout(spec.start_timeout):
                if in_gvisor:
                    return await self._start_in_gvisor(spec, recipe, folder, what)
                return await self._start_isolated(spec, recipe, sidecar, folder, listener, what, rehearse=rehearse)
        finally:
            if workspace:  # what is forked for others must not have it
                self._zygotes.let_go(recipe.kind)

    async def _start_isolated(
        self,
        spec: InstanceSpec,
        recipe: Recipe,
        sidecar: Recipe | None,
        folder: InstanceFolder,
        listener: socket.socket,
        what: str,
        *,
        rehearse: bool,
    ) -> Address:
        root = recipe.kind.root
        instance = await self._spares.take(recipe)
        if spec.id in self._ending or not folder.exists():
            await instance.end()
            raise StartFailed(f"{what} was destroyed while it started")
        self._made[spec.id] = instance
        not_enforced = self._not_enforced(recipe)
        tools = instance.tools
        folder.write_state(
            InstanceState(
                tools=tools,
                pid=instance.fork.pid,
                start_time=instance.fork.start_time,
                environment=spec.environment,
                group=instance.group.name,
                owner=instance.fork.owner,
                root=root.name,
                not_enforced=not_enforced,
                egress=spec.network.hosts if recipe.egress else None,
                open_files=recipe.limits.open_files,
                host_network=recipe.kind.host_network,
            )
        )
        instance.fork.keep()
        if spec.model or spec.uses_environments:
            inside = None if recipe.kind.host_network else folder.leader()
            spec = await self._instance_relays.opened(spec, folder, inside)
        # While others wait for theirs, there is no time for what the first call does as well.
        assignment = assignment_of(spec, root, rehearse=rehearse)
        await instance.assign(listener, assignment)
        if spec.sidecar:
            await self._sidecars.begin(spec, instance, recipe, sidecar, folder)
        try:
            if recipe.egress:
                self._egress.serve(spec.id, instance.listener("egress"), EgressPolicy.parse(spec.network.hosts))
            said = await instance.until_ready(confirmed=assignment.confirm)
        except EOFError:
            raise _failed(instance, f"{what} ended before it was ready{_tail(instance)}") from None
        if isinstance(said, protocol.NotReady):
            raise _failed(instance, f"{what} failed to load: {said.error.strip()}")
        if spec.id in self._ending or not folder.exists():
            raise StartFailed(f"{what} was destroyed while it started")
        instance.let_go()
        if tools is None:
            folder.write_state(InstanceState(tools=said.tools))
        origin = Origin("localhost", socket=str(folder.socket))
        return Address(origin, instance.fork.pid, said.tools, root.name, not_enforced)

    async def _start_in_gvisor(
        self, spec: InstanceSpec, recipe: Recipe, folder: InstanceFolder, what: str
    ) -> Address:
        not_enforced = self._not_enforced(recipe)
        try:
            folder.write_state(InstanceState(not_enforced=not_enforced))
            address = await self._gvisor.start(spec, recipe, folder, variables_of(spec, recipe.kind.root))
        except FileNotFoundError:
            if folder.exists():
                raise
            raise StartFailed(f"{what} was destroyed while it started") from None
        if spec.id in self._ending or not folder.exists():
            raise StartFailed(f"{what} was destroyed while it started")
        return replace(address, not_enforced=not_enforced)

    def _recipe(self, spec: InstanceSpec, root: Rootfs, workspace: Path | None = None) -> Recipe:
        if spec.isolation not in ("", "native", gvisor.NAME):
            raise Unsupported(f"isolation {spec.isolation!r} is not available here; 'aenv doctor' says what is")
        if spec.limits.gpus:
            raise Unsupported(
                "the native engine cannot give an instance a GPU; use the docker or kubernetes engine"
            )
        python = spec.python.folders if spec.python else (Path(sys.prefix), Path(sys.base_prefix))
        for shown in (spec.project, spec.data, *spec.folders.values(), *python):
            if shown and shown not in self._checked:
                check_does_not_hold(shown, self._home)
                self._checked.add(shown)
        kind = Kind(
            project=spec.project.absolute(),
            root=root,
            layers=(("/", root.layers), *root.system.items()),
            python=spec.python,
            requirements=spec.requirements,
            preload=spec.preload,
            stamp=self._stamps.of(spec.project),
            host_network=spec.network.kind == "full",
            data=spec.data,
            folders=tuple(sorted(spec.folders.items())),
            storage=spec.storage,
            storage_place=spec.storage_place,
            workspace=workspace,
            tenant=spec.tenant,
        )
        asked = {name: value for name, value in vars(spec.limits).items() if value is not None}
        limits = replace(DEFAULT_LIMITS, **asked)
        # Well below our own: descriptors that are on their way over sockets are counted together.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 4
        limits = replace(limits, open_files=min(limits.open_files or most, most))
        return Recipe(kind, limits, spec.network.kind == "egress", bool(spec.sidecar), spec.keep_history)

    def _not_enforced(self, recipe: Recipe) -> tuple[str, ...]:
        limits = {"cpu": recipe.limits.cpus, "memory": recipe.limits.memory_bytes, "pids": recipe.limits.pids}
        missing = self._cgroups.missing
        return tuple(f"{name}: {missing[name]}" for name in limits if limits[name] and name in missing)

    # Ending

    async def destroy(self, id: str) -> None:
        """End the instance and everything it started."""
        with contextlib.suppress(InvalidRequest):  # no instance has such an id
            await self._end(id)

    async def ended(self, id: str) -> str:
        """Return, with the reason, when the instance has ended by itself (or has been destroyed)."""
        instance = self._made.get(id)
        if instance is None or instance.is_over:
            return await self._adopted_ended(id)
        await instance.fork.over()
        if instance.is_over:  # it was destroyed, and no one asks why
            return "it was destroyed"
        with contextlib.suppress(OSError):  # its group is being removed
            if instance.group.denied() == "memory":
                return "the host, or a group that the gateway is in, ran out of memory"
            if instance.group.oom_kills():
                return "it used more memory than its limit"
        await asyncio.wait({instance.fork.status}, timeout=_STATUS_COMES)
        status = instance.fork.status.result() if instance.fork.status.done() else None
        return self._sidecars.why(id) or _how_it_ended(status)

    async def _end(self, id: str) -> None:
        await self._ending.end(id, lambda: self._clear(id))

    async def _clear(self, id: str) -> None:
        folder = InstanceFolder(self._root, id)
        await self._egress.stop(id)
        await self._instance_relays.stop(id)
        await self._sidecars.end(id)
        instance = self._made.get(id)
        if instance:
            await instance.end()
            del self._made[id]
        else:
            if gvisor.is_one(folder):
                await self._gvisor.end(id)
            await self._end_adopted(folder)
        await self._relays.stop(id)
        if not self._folders.put_back(folder):
            await asyncio.to_thread(folder.remove)

    async def _end_adopted(self, folder: InstanceFolder) -> None:
        """End what another engine object has made."""
        for process in filter(None, (folder.leader(), sidecars.of(folder))):
            with process.opened() as pidfd:
                if pidfd is not None:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    group = self._group(folder)
                    if group:
                        group.thaw()
                    await readable(pidfd)
        if group := self._group(folder):
            await asyncio.to_thread(_clear_group, group)

    # What there is

    async def running(self) -> dict[str, Address]:
        """The instances that live and are ready, also those of other engine objects on this home."""
        found: dict[str, Address] = {}
        adopted = []
        for folder in filter(sidecars.is_whole, self._all_folders()):
            leader, state = folder.leader(), folder.read_state()
            if leader is None or state.tools is None:
                continue
            origin = Origin("localhost", socket=str(folder.socket))
            own = gvisor.ISOLATION if gvisor.is_one(folder) else ()
            found[folder.id] = Address(
                origin, leader.pid, state.tools, state.root or "", state.not_enforced or (), own
            )
            if folder.id not in self._made and (state.egress or state.model or state.gateway):
                adopted.append((folder.id, folder, leader))
                if sidecar := sidecars.of(folder):
                    adopted.append((sidecars.key(folder.id), folder, sidecar))
        await asyncio.gather(*(reopen(self._relays, self._egress, *one) for one in adopted))
        await self._instance_relays.reopen(adopted)
        return found

    async def leftovers(self) -> Ids:
        """Those that are not running: their process is gone, or they never became ready.

        An instance that another engine object starts at this moment is among them: destroy them only when
        there is no other.
        """
        running = await self.running()
        folders = [*self._all_folders()]
        known = {folder.read_state().group for folder in folders}
        groups = await asyncio.to_thread(self._cgroups.leftovers)
        strays = {name for name in groups if name not in known and not is_in_use(name)}
        return sorted({folder.id for folder in folders if folder.id not in running} | strays)

    async def sweep(self) -> None:
        """Remove what engine objects of ended processes have left, and no instance uses."""
        await asyncio.to_thread(self._sweep)

    def _sweep(self) -> None:
        self._folders.sweep()
        self._cgroups.sweep()
        owned = [(name, owner) for name in self._cgroups.leftovers() if (owner := owner_of(name))]
        living = {owner for owner in {owner for _, owner in owned} if owners.runs(owner)}
        names = [name for name, owner in owned if owner not in living]
        if not names:  # as a rule: so the state of thousands of instances is not read in every round
            return
        # Looked for after those: a gateway that takes an instance over keeps its group.
        known = {folder.read_state().group for folder in self._all_folders()}
        for name in names:
            if name not in known:
                with contextlib.suppress(NotFound, OSError):  # another one sweeps, too; or it still ends
                    _clear_group(self._cgroups.group(name))

    async def used(self, ids: Sequence[str]) -> Mapping[str, ResourceUsage]:
        """What those of `ids` use that run."""
        return await asyncio.to_thread(self._used, ids)

    def _used(self, ids: Sequence[str]) -> dict[str, ResourceUsage]:
        found = {}
        for id in ids:
            with contextlib.suppress(InvalidRequest, OSError):
                folder = InstanceFolder(self._root, id)
                if leader := folder.leader():
                    group = self._group(folder)
                    if group and self._cgroups.enforced:
                        used = group.used()
                    else:
                        used = cgroups.used_by(
                            [pid for one in sidecars.parts(folder, leader) for pid in members(one)]
                        )
                    found[id] = ResourceUsage(used.cpu_seconds, used.memory_bytes, used.processes)
        return found

    # Frozen, and made ahead

    async def freeze(self, id: str) -> None:
        """From now on it uses no CPU."""
        folder, leader = self._living(id)
        group = self._group(folder)
        if group and "freezer" in self._cgroups.enforced:
            await asyncio.to_thread(group.freeze)
        else:
            for part in sidecars.parts(folder, leader):
                await asyncio.to_thread(stop, part)

    async def thaw(self, id: str) -> None:
        """It goes on."""
        folder, leader = self._living(id)
        group = self._group(folder)
        if group and "freezer" in self._cgroups.enforced:
            group.thaw()
        else:
            for part in sidecars.parts(folder, leader):
                await asyncio.to_thread(go_on, part)

    async def keep_warm(self, spec: InstanceSpec, count: int) -> None:
        """Keep so many spare ones for instances like `spec`."""
        if spec.isolation == gvisor.NAME:
            raise Unsupported("spare instances are not possible in gVisor; set 'warmPool' to 0")
        recipe = self._recipe(spec, await self._root_of(spec))
        self._kept_warm[recipe] = spec.environment
        self._spares.keep(recipe, count)

    def warm(self) -> Mapping[str, int]:
        """How many are ready now, by environment."""
        found: dict[str, int] = {}
        for recipe, count in self._spares.ready().items():
            name = self._kept_warm[recipe]
            found[name] = found.get(name, 0) + count
        return found

    def _group(self, folder: InstanceFolder) -> cgroups.ControlGroup | None:
        instance = self._made.get(folder.id)
        if instance:
            return instance.group
        # Who made it may have been killed before it was written down; then it is called as the instance.
        name = folder.read_state().group or ("" if folder.id in self._creating else folder.id)
        with contextlib.suppress(NotFound, InvalidRequest):
            return self._cgroups.group(name) if name else None
        return None

    def _all_folders(self) -> Iterator[InstanceFolder]:
        for path in sorted(self._root.glob("*/")):
            with contextlib.suppress(InvalidRequest):  # a folder that is not an instance's
                yield InstanceFolder(self._root, path.name)


def _clear_group(group: cgroups.ControlGroup) -> None:
    group.kill()  # what was forked for it, and whose pid was not written down
    group.remove()


def _failed(instance: NativeInstance, message: str) -> StartFailed | Unavailable:
    """Why an instance did not begin: not its own fault where something above it had no room."""
    if short := instance.group.denied():
        return Unavailable(f"the host has no more {short} for another instance: {message}", retry_after=5)
    return StartFailed(message)


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "its process ended"
    if os.WIFSIGNALED(status):
        return f"its process was killed by signal {os.WTERMSIG(status)}"
    return f"its process exited with code {os.WEXITSTATUS(status)}"


def _tail(instance: NativeInstance | None) -> str:
    """The end of what an instance printed, set off as a sentence's last part."""
    text = instance.printed(_TAIL_BYTES).decode(errors="replace").strip() if instance else ""
    return f"; it printed last:\n{text}" if text else " and printed nothing"
