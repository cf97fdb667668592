"""Sidecars: a second process tree of an instance, in the rootfs of another image, where its tools run commands.

It is a spare instance of its own kind, with its own user, pid, mount and network namespaces; it shares the control
group of the main part, and its end. The main part has a socket that the sidecar listens on: it was made by the
main part, in its own file system, and handed over, so that the two share no folder.

Not here: waiting for the first use of one that is made only then (`sidecar_first_use.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from ...base.errors import StartFailed, Unsupported
from ...isolation.egress import VARIABLES as PROXY_VARIABLES
from ...isolation.egress import Egress, EgressPolicy
from ...isolation.sandbox import protocol
from ...isolation.sandbox.rootfs import Rootfs
from .. import proc
from ..base import InstanceSpec, LazySidecar
from ..descriptors import readable
from ..folder import InstanceFolder
from ..instance_state import AwaitedSidecar, InstanceState, SidecarProcess
from ..model_relays import ModelRelays
from .kinds import Kind
from .sidecar_first_use import DestroyedMeanwhile, SidecarFirstUses
from .spares import NativeInstance, Recipe, Spares

SidecarRootfs = Callable[[str], Awaitable[Rootfs]]
LazySidecarRootfs = Callable[[LazySidecar], Awaitable[Rootfs]]

_PROJECT = Path(__file__).parents[2] / "inside" / "sidecar"
# What it needs there must be loaded before: the image may have no Python.
_PRELOAD = (
    *("base64", "difflib", "select", "shutil", "signal", "subprocess", "threading", "traceback"),
    *("codecs", "fcntl", "struct", "termios", "unicodedata"),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAIL_BYTES = 4096
_ENDED = -1  # the start time of no process
_NO_LIMIT = 10.0 * 365 * 24 * 3600  # seconds; the call in the main part has its own


class Sidecars:
    """The sidecars of an engine's instances. `root_of` finds the root of an image by its name.

    `lazy_rootfs` makes those of sidecars that are made at their first use.
    """

    def __init__(
        self,
        spares: Spares,
        egress: Egress,
        models: ModelRelays,
        root_of: SidecarRootfs | None,
        lazy_rootfs: LazySidecarRootfs | None,
    ) -> None:
        self._spares = spares
        self._egress = egress
        self._models = models
        self._root_of = root_of
        self._lazy_rootfs = lazy_rootfs
        self._first_uses = SidecarFirstUses()
        self._made: dict[str, NativeInstance] = {}
        self._reasons: dict[str, str] = {}

    async def close(self) -> None:
        """Wait for no first use any more. Sidecars that were made live on."""
        await self._first_uses.close()

    async def begin(
        self,
        spec: InstanceSpec,
        first: NativeInstance,
        like: Recipe,
        recipe: Recipe | None,
        folder: InstanceFolder,
    ) -> None:
        """Start the sidecar; without a recipe, hold its socket until it is used for the first time.

        `like` is the recipe of the main part.
        """
        listener = first.listener("sidecar")
        if recipe:
            with listener:
                await self._start(spec, recipe, first, folder, listener)
            return
        _write_waits(folder)
        self._first_uses.wait(spec.id, listener, lambda held: self._start_lazy(spec, first, like, folder, held))

    async def recipe(self, spec: InstanceSpec, first: Recipe) -> Recipe:
        """For the sidecar of an instance. NotFound when its image is not here."""
        root = await self._root(spec.sidecar)
        kind = Kind(
            project=_PROJECT,
            root=root,
            layers=(("/", root.layers), *root.system.items()),
            requirements=root.packages,
            preload=_PRELOAD,
            host_network=first.kind.host_network,
            has_rights=True,
            tenant=first.kind.tenant,
        )
        return Recipe(kind, first.limits, first.egress, keep_history=False, is_sidecar=True)

    async def _root(self, sidecar: str | LazySidecar) -> Rootfs:
        if isinstance(sidecar, LazySidecar):
            if self._lazy_rootfs is None:
                raise Unsupported("no sidecar: this engine makes none; start it by 'aenv serve'")
            return await self._lazy_rootfs(sidecar)
        if self._root_of is None:
            raise Unsupported(
                f"no sidecar {sidecar!r}: this engine has no images; "
                "start it by 'aenv serve', and bring the image with 'aenv image load'"
            )
        return await self._root_of(sidecar)

    async def _start_lazy(
        self,
        spec: InstanceSpec,
        first: NativeInstance,
        like: Recipe,
        folder: InstanceFolder,
        listener: socket.socket,
    ) -> None:
        """As `_start`, but a failure leaves the main part as it was."""
        try:
            recipe = await self.recipe(spec, like)
            await self._start(spec, recipe, first, folder, listener)
        except BaseException:
            await self._drop(spec.id)
            if not first.is_over:
                _write_waits(folder)
            raise

    async def _start(
        self,
        spec: InstanceSpec,
        recipe: Recipe,
        first: NativeInstance,
        folder: InstanceFolder,
        listener: socket.socket,
    ) -> None:
        """Make it, in the group of the first; return when it serves. Ending the instance ends it too."""
        what = f"the sidecar of {spec.environment!r}, {recipe.kind.root.name!r},"
        try:
            sidecar = await self._spares.make(recipe, within=first.group)
        except OSError as error:  # its group is gone
            raise DestroyedMeanwhile(f"{what} was destroyed while it started: {error}") from error
        self._made[spec.id] = sidecar
        first.fork.then(sidecar.fork.kill)
        if first.is_over:
            await self._drop(spec.id)
            raise DestroyedMeanwhile(f"{what} was destroyed while it started")
        # Before it runs anything: an engine that comes later must find it.
        process = SidecarProcess(sidecar.fork.pid, proc.start_time(sidecar.fork.pid))
        folder.write_state(InstanceState(sidecar=process))
        sidecar.fork.keep()
        try:
            model = await self._model(spec, folder)
            await sidecar.assign(listener, _assignment(spec, recipe.kind.root, model))
            if recipe.egress:
                self._egress.serve(
                    key(spec.id), sidecar.listener("egress"), EgressPolicy.parse(spec.network.hosts)
                )
            said = await sidecar.until_ready()
        except EOFError:
            if first.fork.is_over:
                return  # it has more to say about it
            printed = sidecar.printed(_TAIL_BYTES).decode(errors="replace").strip()
            last = f"; it printed last:\n{printed}" if printed else ""
            raise StartFailed(f"{what} ended before it was ready{last}") from None
        if isinstance(said, protocol.NotReady):
            raise StartFailed(f"{what} failed to start: {said.error.strip()}")
        sidecar.let_go()
        self._tie(spec.id, first, sidecar)

    async def _model(self, spec: InstanceSpec, folder: InstanceFolder) -> dict[str, str]:
        """The variables that lead to the model which the instance may ask, from the sidecar's own network."""
        process = of(folder) if spec.model else None
        return await self._models.opened_for_sidecar(key(spec.id), folder, process) if process else {}

    def _tie(self, id: str, first: NativeInstance, sidecar: NativeInstance) -> None:
        """From now on the main part does not live without the sidecar."""

        def sidecar_is_over() -> None:
            if not first.fork.is_over:
                self._reasons[id] = "its sidecar ended"
                first.fork.kill()

        sidecar.fork.then(sidecar_is_over)

    async def end(self, id: str) -> None:
        """End the sidecar, if there is one or would be; its group is the main part's."""
        self._reasons.pop(id, None)
        await self._first_uses.stop(id)
        await self._drop(id)

    async def _drop(self, id: str) -> None:
        await self._egress.stop(key(id))
        await self._models.stop(key(id))
        if sidecar := self._made.pop(id, None):
            await sidecar.end()

    def why(self, id: str) -> str:
        """Why the main part has ended, if it is because of the sidecar."""
        return self._reasons.get(id, "")


def _write_waits(folder: InstanceFolder) -> None:
    """Write down which process holds the socket of a sidecar that is not made yet."""
    holder = AwaitedSidecar(os.getpid(), since=proc.start_time(os.getpid()) or 0)
    folder.write_state(InstanceState(sidecar=holder))


def of(folder: InstanceFolder) -> proc.Process | None:
    """The first process of the sidecar that an instance was given, also when it has ended."""
    match folder.read_state().sidecar:
        case SidecarProcess(pid, None):
            return proc.Process(pid, _ENDED)
        case SidecarProcess(pid, int(since)):
            return proc.Process(pid, since)
    return None


def is_whole(folder: InstanceFolder) -> bool:
    """Whether the sidecar runs, where there was one; or can be made, where it was not used yet."""
    match folder.read_state().sidecar:
        case AwaitedSidecar(pid, since):
            return proc.Process(pid, since).runs()  # without it the socket is closed
    sidecar = of(folder)
    return sidecar is None or sidecar.runs()


def parts(folder: InstanceFolder, leader: proc.Process) -> list[proc.Process]:
    """The first processes of all parts of an instance."""
    return [leader, *filter(None, [of(folder)])]


async def ended(folder: InstanceFolder, leader: proc.Process) -> str:
    """Return, with the reason, when one part of another engine object's instance has ended. End both then."""
    sidecar = of(folder)
    with leader.opened() as first, sidecar.opened() if sidecar else contextlib.nullcontext() as other:
        if first is None:
            return "its process ended"  # only its parent learns how
        if sidecar is None:
            await readable(first)
            return "its process ended"
        over = set() if other is None else await readable(first, other)
        for handle in (first, other):
            if handle is not None and handle not in over:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        return "its process ended" if first in over else "its sidecar ended"


def key(id: str) -> str:
    """What the sidecar is called in the egress: no instance has such an id."""
    return f"{id}.sidecar"


def _assignment(spec: InstanceSpec, root: Rootfs, model: dict[str, str]) -> protocol.Assignment:
    """What it is told: nothing that is meant for the main part, whose variables may hold secrets.

    `model` leads to the model that both parts may ask.
    """
    variables = {
        "PATH": _PATH,
        "HOME": "/root",
        "TMPDIR": "/tmp",
        **(PROXY_VARIABLES if spec.network.kind == "egress" else {}),
        **root.variables,
        **model,
        "AENV_INSTANCE_ID": spec.id,
        "AENV_WORKSPACE": root.folder or "/",
        "AENV_CALL_TIMEOUT": f"{_NO_LIMIT:g}",
    }
    return protocol.Assignment(variables, folder="/", arguments=(), confirm=True, rehearse=False)
