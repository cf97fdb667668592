"""Second parts: a second process tree of an instance, in the root of another image, where the first runs commands.

It is a blank instance of its own kind, with its own user, pid, mount and network namespaces; it shares the control
group of the first, and its end. The first has a socket that the second listens on: it was made by the
first, in its own file system, and handed over, so that the two share no folder.

Not here: waiting for the first use of one that is made only then (`first_use.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import StartFailed, Unsupported
from ...isolation.egress import VARIABLES as PROXY_VARIABLES
from ...isolation.egress import Egress, Policy
from ...isolation.sandbox import protocol
from ...isolation.sandbox.root import Root
from .. import proc
from ..base import InstanceSpec, Later
from ..descriptors import readable
from ..folder import InstanceFolder
from .blanks import Blank, Blanks, Recipe
from .first_use import DestroyedMeanwhile, FirstUses
from .zygotes import Kind

SecondRoot = Callable[[str], Awaitable[Root]]
LaterRoot = Callable[[Later], Awaitable[Root]]

_PROJECT = Path(__file__).parents[2] / "envs" / "second_part"
# What it needs there must be loaded before: the image may have no Python.
_PRELOAD = (
    *("base64", "difflib", "select", "shutil", "signal", "subprocess", "threading", "traceback"),
    *("codecs", "fcntl", "struct", "termios", "unicodedata"),
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAIL_BYTES = 4096
_NO_LIMIT = 10.0 * 365 * 24 * 3600  # seconds; the call in the first part has its own


class Seconds:
    """The second parts of an engine's instances. `root_of` finds the root of an image by its name.

    `later_root` makes those of second parts that are made at their first use.
    """

    def __init__(
        self, blanks: Blanks, egress: Egress, root_of: SecondRoot | None, later_root: LaterRoot | None
    ) -> None:
        self._blanks = blanks
        self._egress = egress
        self._root_of = root_of
        self._later_root = later_root
        self._first_uses = FirstUses()
        self._made: dict[str, Blank] = {}
        self._reasons: dict[str, str] = {}

    async def close(self) -> None:
        """Wait for no first use any more. Second parts that were made live on."""
        await self._first_uses.close()

    async def begin(
        self, spec: InstanceSpec, first: Blank, like: Recipe, recipe: Recipe | None, folder: InstanceFolder
    ) -> None:
        """Start the second part; without a recipe, hold its socket until it is used for the first time.

        `like` is the recipe of the first part.
        """
        listener = first.listener("second")
        if recipe:
            with listener:
                await self._start(spec, recipe, first, folder, listener)
            return
        _write_waits(folder)
        self._first_uses.wait(spec.id, listener, lambda held: self._start_later(spec, first, like, folder, held))

    async def recipe(self, spec: InstanceSpec, first: Recipe) -> Recipe:
        """For the second part of an instance. NotFound when its image is not here."""
        root = await self._root(spec.second)
        kind = Kind(
            project=_PROJECT,
            root=root,
            layers=(("/", root.layers), *root.system.items()),
            layer=root.packages,
            preload=_PRELOAD,
            host_network=first.kind.host_network,
            has_rights=True,
            tenant=first.kind.tenant,
        )
        return Recipe(kind, first.limits, first.egress, keep_history=False, is_second=True)

    async def _root(self, second: str | Later) -> Root:
        if isinstance(second, Later):
            if self._later_root is None:
                raise Unsupported("no second part: this engine makes none; start it by 'aenv serve'")
            return await self._later_root(second)
        if self._root_of is None:
            raise Unsupported(
                f"no second part {second!r}: this engine has no images; "
                "start it by 'aenv serve', and bring the image with 'aenv image load'"
            )
        return await self._root_of(second)

    async def _start_later(
        self, spec: InstanceSpec, first: Blank, like: Recipe, folder: InstanceFolder, listener: socket.socket
    ) -> None:
        """As `_start`, but a failure leaves the first part as it was."""
        try:
            recipe = await self.recipe(spec, like)
            await self._start(spec, recipe, first, folder, listener)
        except BaseException:
            await self._drop(spec.id)
            if not first.is_over:
                _write_waits(folder)
            raise

    async def _start(
        self, spec: InstanceSpec, recipe: Recipe, first: Blank, folder: InstanceFolder, listener: socket.socket
    ) -> None:
        """Make it, in the group of the first; return when it serves. Whoever ends the instance ends it too."""
        what = f"the second part of {spec.environment!r}, {recipe.kind.root.name!r},"
        try:
            second = await self._blanks.make(recipe, within=first.group)
        except OSError as error:  # its group is gone
            raise DestroyedMeanwhile(f"{what} was destroyed while it started: {error}") from error
        self._made[spec.id] = second
        first.fork.then(second.fork.kill)
        if first.is_over:
            await self._drop(spec.id)
            raise DestroyedMeanwhile(f"{what} was destroyed while it started")
        # Before it runs anything: an engine that comes later must find it.
        folder.write_state(second={"pid": second.fork.pid, "start_time": proc.start_time(second.fork.pid)})
        second.fork.keep()
        try:
            await second.assign(listener, _assignment(spec, recipe.kind.root))
            if recipe.egress:
                self._egress.serve(key(spec.id), second.listener("egress"), Policy.parse(spec.network.hosts))
            said = await second.until_ready()
        except EOFError:
            if first.fork.is_over:
                return  # it has more to say about it
            printed = second.printed(_TAIL_BYTES).decode(errors="replace").strip()
            last = f"; it printed last:\n{printed}" if printed else ""
            raise StartFailed(f"{what} ended before it was ready{last}") from None
        if isinstance(said, protocol.NotReady):
            raise StartFailed(f"{what} failed to start: {said.error.strip()}")
        second.let_go()
        self._tie(spec.id, first, second)

    def _tie(self, id: str, first: Blank, second: Blank) -> None:
        """From now on the first part does not live without the second."""

        def second_is_over() -> None:
            if not first.fork.is_over:
                self._reasons[id] = "its second part ended"
                first.fork.kill()

        second.fork.then(second_is_over)

    async def end(self, id: str) -> None:
        """End the second part, if there is one or would be; its group is the first part's."""
        self._reasons.pop(id, None)
        await self._first_uses.stop(id)
        await self._drop(id)

    async def _drop(self, id: str) -> None:
        await self._egress.stop(key(id))
        if second := self._made.pop(id, None):
            await second.end()

    def why(self, id: str) -> str:
        """Why the first part has ended, if it is because of the second."""
        return self._reasons.get(id, "")


def _write_waits(folder: InstanceFolder) -> None:
    """Write down which process holds the socket of a second part that is not made yet."""
    folder.write_state(second={"engine": os.getpid(), "since": proc.start_time(os.getpid())})


def of(folder: InstanceFolder) -> proc.Process | None:
    """The first process of the second part that an instance was given, also when it has ended."""
    match folder.read_state():
        case {"second": {"pid": int(pid), "start_time": int(since)}}:
            return proc.Process(pid, since)
        case {"second": {"pid": int(pid)}}:  # it had ended before it was written down
            return proc.Process(pid, -1)
    return None


def is_whole(folder: InstanceFolder) -> bool:
    """Whether the second part runs, where there was one; or can be made, where it was not used yet."""
    match folder.read_state():
        case {"second": {"engine": int(pid), "since": int(since)}}:
            return proc.Process(pid, since).runs()  # without it nobody has the socket any more
    second = of(folder)
    return second is None or second.runs()


def parts(folder: InstanceFolder, leader: proc.Process) -> list[proc.Process]:
    """The first processes of all parts of an instance."""
    return [leader, *filter(None, [of(folder)])]


async def ended(folder: InstanceFolder, leader: proc.Process) -> str:
    """Return, with the reason, when one part of an instance that somebody else made has ended. End both then."""
    second = of(folder)
    with leader.opened() as first, second.opened() if second else contextlib.nullcontext() as other:
        if first is None:
            return "its process ended"  # only its parent learns how
        if second is None:
            await readable(first)
            return "its process ended"
        over = set() if other is None else await readable(first, other)
        for handle in (first, other):
            if handle is not None and handle not in over:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        return "its process ended" if first in over else "its second part ended"


def key(id: str) -> str:
    """What the second part is called in the egress: no instance has such an id."""
    return f"{id}.second"


def _assignment(spec: InstanceSpec, root: Root) -> Mapping[str, Any]:
    """What it is told: nothing that is meant for the first part, whose variables may hold secrets."""
    variables = {
        "PATH": _PATH,
        "HOME": "/root",
        "TMPDIR": "/tmp",
        **(PROXY_VARIABLES if spec.network.kind == "egress" else {}),
        **root.variables,
        "AENV_INSTANCE_ID": spec.id,
        "AENV_WORKSPACE": root.folder or "/",
        "AENV_CALL_TIMEOUT": f"{_NO_LIMIT:g}",
    }
    return {"variables": variables, "folder": "/", "arguments": (), "confirm": True, "rehearse": False}
