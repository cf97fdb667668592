"""Running a command in a root, with what it writes kept: how the RUN of a Dockerfile is done.

Not here: what happens around the command (`build_step.py`), what becomes of the layer (`isolation/rootfs`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...base.errors import InvalidRequest, StartFailed, Unsupported
from ...base.limits import spell_bytes
from ...base.sockets import readable
from .. import cgroups
from ..cgroups import Cgroups, ControlGroup
from . import build_step, interpreter, probe
from .build_step import CommandEnded, Printing
from .orders import MAX_ORDER, Bind, BuildOrder, NotStarted, layers_of
from .rootfs import Rootfs
from .typed_json import Broken, decode, encode

OnLine = Callable[[str], None]

_WORK = "work"  # of the overlays; what keeps the layer removes it
_CHUNK = 64 << 10
_MAX_LINE = 16 << 10
_CAPABILITIES = "security.capability"
_FROM_STEP = (Printing, CommandEnded, NotStarted)
_BECOMING = re.compile(r"setgroups|set\w*[ug]id|invalid argument|not permitted", re.IGNORECASE)


@dataclass(frozen=True)
class BuildLimits:
    """What a command may use of the machine, where the kernel can limit it."""

    cgroups: Cgroups
    memory_bytes: int = 4 << 30
    pids: int = 1024
    seconds: float = 3600.0

    @contextlib.contextmanager
    def group(self) -> Iterator[ControlGroup]:
        """A group of its own; nothing of it is left afterwards."""
        name = f"run-{secrets.token_hex(8)}"
        group = self.cgroups.make(name, cpus=None, memory_bytes=self.memory_bytes, pids=self.pids)
        try:
            yield group
        finally:
            group.kill()
            group.remove()


@contextlib.contextmanager
def limited(home: Path) -> Iterator[Callable[..., Coroutine[Any, Any, int]]]:
    """`run` for the builds of one home, each command with the limits that an instance has by default."""
    # Not those of the instances there: a group that no instance has would be taken for what one has left.
    name = f"aenv-build-{hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:8]}"
    with contextlib.closing(cgroups.find(name)) as groups:
        yield partial(run, held=BuildLimits(groups))


async def run(
    root: Rootfs,
    command: Sequence[str],
    *,
    held: BuildLimits | None = None,
    upper: Path,
    variables: Mapping[str, str],
    folder: str,
    user: str = "",
    network: bool,
    on_line: OnLine,
) -> int:
    """Run a command in the root; its exit status. What it writes is in `upper`, a folder for each of its trees.

    The command is root inside, with the rights over files that package managers need, in namespaces of its own;
    with `network` in the host's network. Cancelling ends all of it before this returns. What it may use is `held`.
    """
    if missing := probe.missing_isolation():
        raise Unsupported(f"commands cannot be isolated here: {missing}")
    uppers = await asyncio.to_thread(_make_uppers, root, upper)
    layers, system = layers_of(root)
    order = BuildOrder(
        layers=layers,
        system=system,
        binds=_binds(upper),
        masked=(interpreter.built_in_environments(),),
        host_network=network,
        uppers=uppers,
        command=tuple(command),
        variables=dict(variables),
        folder=folder,
        user=user,
    )
    complaints: list[str] = []

    def listen(line: str) -> None:
        if _BECOMING.search(line):
            complaints.append(line)
        on_line(line)

    status = await _held_status(_RunningStep(order, listen), held, listen)
    if status and complaints and os.geteuid() != 0:
        on_line(f"no command can become another user here: {build_step.ONE_ID}; let root start it")
    await asyncio.to_thread(take_rights, [upper / tree for tree in _trees(root).values()])
    return status


async def _held_status(running: _RunningStep, held: BuildLimits | None, on_line: OnLine) -> int:
    if held is None:
        return await running.status()
    with held.group() as group:
        try:
            async with asyncio.timeout(held.seconds):
                status = await running.status(group)
        except TimeoutError:
            raise StartFailed(f"the command did not end within {held.seconds / 60:g} minutes") from None
        with contextlib.suppress(OSError):  # where nothing counts them
            if status and group.oom_kills():
                on_line(f"it used more than {spell_bytes(held.memory_bytes)} of memory, which is the limit")
        return status


class _RunningStep:
    """One command, from its launch until nothing of it is left."""

    def __init__(self, order: BuildOrder, on_line: OnLine) -> None:
        self._order = encode(order)
        if len(self._order) > MAX_ORDER:
            raise InvalidRequest(
                "the command and its variables are too long; put the script into a file and COPY it"
            )
        self._on_line = on_line
        self._status: int | None = None
        self._error = "it ended before the command did"

    async def status(self, group: ControlGroup | None = None) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_ORDER)
        ours.setblocking(False)
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "aenv.isolation.sandbox.launcher", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env=interpreter.variables(),
                    cwd="/",
                    start_new_session=True,
                )
            try:
                if group:
                    group.attach(process.pid)  # before its order: all that it starts is in the group
                try:
                    ours.send(self._order)
                except OSError as error:
                    raise InvalidRequest(f"the command and its variables are too long: {error}") from None
                assert process.stdout is not None
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._print(process.stdout))
                    tasks.create_task(self._converse(ours, tasks))
            finally:
                # The build step reads that its caller has gone, and ends; then nothing is left.
                ours.close()
                await asyncio.shield(process.wait())
        if self._status is None:
            raise StartFailed(f"the command could not be run: {self._error}")
        return self._status

    async def _converse(self, control: socket.socket, tasks: asyncio.TaskGroup) -> None:
        while True:
            await readable(control.fileno())
            try:
                message, handles, _, _ = socket.recv_fds(control, _CHUNK, 1)
            except ConnectionResetError:
                return
            if not message:
                return
            try:
                await self._hear(message, handles, tasks)
            except Broken as error:
                self._error = str(error)
            finally:
                for handle in handles:
                    os.close(handle)

    async def _hear(self, message: bytes, handles: list[int], tasks: asyncio.TaskGroup) -> None:
        """Do what follows from a message; descriptors that are used are taken out of `handles`."""
        match decode(message, *_FROM_STEP):
            case Printing() if handles:
                output = await _opened(handles.pop())
                tasks.create_task(self._print(output))
            case CommandEnded(status):
                self._status = status
            case NotStarted(reason):
                self._error = f"{reason}; 'aenv doctor' says what is missing"

    async def _print(self, output: asyncio.StreamReader) -> None:
        async for line in _lines(output):
            self._on_line(line)


def _make_uppers(root: Rootfs, upper: Path) -> dict[str, tuple[str, str]]:
    """The folders that the overlays need, and where they are on the stage."""
    trees = _trees(root)
    for tree in trees.values():
        (upper / tree).mkdir(parents=True, exist_ok=True, mode=0o755)
        (upper / _WORK / tree).mkdir(parents=True, exist_ok=True)
    at = build_step.KEPT
    return {target: (f"{at}/{tree}", f"{at}/{_WORK}/{tree}") for target, tree in trees.items()}


def _trees(root: Rootfs) -> dict[str, str]:
    return {"/": "root", **{target: target.lstrip("/") for target in root.system}}


def _binds(upper: Path) -> tuple[Bind, ...]:
    """What is on the stage besides the root: the interpreter, and what keeps the command's files."""
    interpreters = (Bind(path, path, is_ours=False, is_hidden=True) for path in interpreter.folders())
    return *interpreters, Bind(str(upper.absolute()), build_step.KEPT, is_writable=True, is_hidden=True)


def take_rights(trees: Sequence[Path]) -> None:
    """Take away what would lend the owner's rights, or capabilities: on the host, too, the files are root's.

    Nothing of the command lives any more, so no path changes under us, and what is taken stays taken.
    """
    waiting = [str(tree) for tree in trees]
    try:
        while waiting:
            folder = waiting.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    _take_rights_of(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    except OSError as error:
        raise InvalidRequest(
            f"what the command has left cannot be kept: {(error.strerror or str(error)).lower()}"
        ) from None


def _take_rights_of(path: str) -> None:
    """Both kinds: a file may have either, or the two at once. A change of the mode leaves capabilities alone."""
    mode = os.lstat(path).st_mode
    if stat.S_ISREG(mode):
        try:
            os.removexattr(path, _CAPABILITIES, follow_symlinks=False)
        except OSError as error:
            # None is there, which is usual; or an ordinary user may not: it holds in their own namespaces alone.
            if error.errno not in (errno.ENODATA, errno.ENOTSUP) and os.geteuid() == 0:
                raise
    if mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISLNK(mode):
        os.chmod(path, stat.S_IMODE(mode) & 0o1777)


async def _lines(output: asyncio.StreamReader) -> AsyncIterator[str]:
    """Line by line as they come; a line that does not end comes in parts."""
    left = b""
    while piece := await output.read(_CHUNK):
        *whole, left = re.split(rb"[\r\n]+", left + piece)
        if len(left) > _MAX_LINE:
            whole, left = [*whole, left], b""
        for line in whole:
            for start in range(0, len(line), _MAX_LINE):
                yield line[start : start + _MAX_LINE].decode(errors="replace")
    if left:
        yield left.decode(errors="replace")


async def _opened(handle: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(handle, "rb", buffering=0)
    )
    return reader
