"""Running a command in a root, with what it writes kept: how the RUN of a Dockerfile is done.

Not here: what happens around the command inside (`step.py`), and what becomes of the layer (`aenv.roots`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest, StartFailed, Unsupported
from . import interpreter, probe, step
from .launch import MAX_ORDER
from .mounts import Bind
from .root import Root

OnLine = Callable[[str], None]

_WORK = "work"  # of the overlays; whoever keeps the layer removes it
_CHUNK = 64 << 10
_MAX_LINE = 16 << 10
_BECOMING = re.compile(r"setgroups|set\w*[ug]id|invalid argument|not permitted", re.IGNORECASE)


async def run(
    root: Root,
    command: Sequence[str],
    *,
    upper: Path,
    variables: Mapping[str, str],
    folder: str,
    user: str = "",
    network: bool,
    on_line: OnLine,
) -> int:
    """Run a command in the root; its exit status. What it writes is in `upper`, a folder for each of its trees.

    The command is root inside, with the rights over files that package managers need, in namespaces of its own;
    with `network` in the host's network. Cancelling ends all of it before this returns.
    """
    if missing := probe.missing_isolation():
        raise Unsupported(f"commands cannot be isolated here: {missing}")
    uppers = await asyncio.to_thread(_make_uppers, root, upper)
    order = {
        "layers": [str(path) for path in root.layers],
        "system": {target: [str(path) for path in paths] for target, paths in root.system.items()},
        "binds": [vars(bind) for bind in _binds(upper)],
        "masked": [interpreter.built_in_environments()],
        "host_network": network,
        "program": "aenv.sandbox.step",
        "goes_inside": False,
        "uppers": uppers,
        "command": list(command),
        "variables": dict(variables),
        "folder": folder,
        "user": user,
    }
    complaints: list[str] = []

    def listen(line: str) -> None:
        if _BECOMING.search(line):
            complaints.append(line)
        on_line(line)

    status = await _Running(order, listen).status()
    if status and complaints and os.geteuid() != 0:
        on_line(f"nobody can become another user here: {step.ONE_ID}; let root start it")
    if os.geteuid() == 0:
        await asyncio.to_thread(_take_rights, [upper / tree for tree in _trees(root).values()])
    return status


class _Running:
    """One command, from its launch until nothing of it is left."""

    def __init__(self, order: dict[str, Any], on_line: OnLine) -> None:
        self._order = json.dumps(order).encode()
        if len(self._order) > MAX_ORDER:
            raise InvalidRequest(
                "the command and its variables are too long; put the script into a file and COPY it"
            )
        self._on_line = on_line
        self._status: int | None = None
        self._error = "it ended before the command did"

    async def status(self) -> int:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_ORDER)
        ours.setblocking(False)
        with ours:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "aenv.sandbox.launch", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    env=interpreter.variables(),
                    cwd="/",
                    start_new_session=True,
                )
            try:
                try:
                    ours.send(self._order)
                except OSError as error:
                    raise InvalidRequest(f"the command and its variables are too long: {error}") from None
                assert process.stdout is not None
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._print(process.stdout))
                    tasks.create_task(self._converse(ours, tasks))
            finally:
                # Whoever is inside reads that nobody waits for it any more, and ends; then nothing is left.
                ours.close()
                await asyncio.shield(process.wait())
        if self._status is None:
            raise StartFailed(f"the command could not be run: {self._error}")
        return self._status

    async def _converse(self, control: socket.socket, tasks: asyncio.TaskGroup) -> None:
        while True:
            await _readable(control)
            try:
                message, handles, _, _ = socket.recv_fds(control, _CHUNK, 1)
            except ConnectionResetError:
                return
            match json.loads(message or b"null"):
                case {"output": True} if len(handles) == 1:
                    output = await _opened(handles.pop())
                    tasks.create_task(self._print(output))
                case {"status": int(status)}:
                    self._status = status
                case {"started": False, "error": str(error)}:
                    self._error = f"{error}; 'aenv doctor' says what is missing"
                case None:
                    return
            for handle in handles:
                os.close(handle)

    async def _print(self, output: asyncio.StreamReader) -> None:
        async for line in _lines(output):
            self._on_line(line)


def _make_uppers(root: Root, upper: Path) -> list[tuple[str, tuple[str, str]]]:
    """The folders that the overlays need, and where they are on the stage."""
    trees = _trees(root)
    for tree in trees.values():
        (upper / tree).mkdir(parents=True, exist_ok=True, mode=0o755)
        (upper / _WORK / tree).mkdir(parents=True, exist_ok=True)
    at = step.KEPT
    return [(target, (f"{at}/{tree}", f"{at}/{_WORK}/{tree}")) for target, tree in trees.items()]


def _trees(root: Root) -> dict[str, str]:
    return {"/": "root", **{target: target.lstrip("/") for target in root.system}}


def _binds(upper: Path) -> list[Bind]:
    """What is on the stage besides the root: the interpreter, and what keeps the command's files."""
    binds = [Bind(path, path, is_ours=False, is_hidden=True) for path in interpreter.folders()]
    binds.append(Bind(str(upper.absolute()), step.KEPT, is_writable=True, is_hidden=True))
    return binds


def _take_rights(trees: Sequence[Path]) -> None:
    """Take the mode bits away that would lend the owner's rights: on the host, too, the files are root's.

    Nothing of the command lives any more, so no path changes under us.
    """

    def fail(error: OSError) -> None:
        raise error

    try:
        for tree in trees:
            for folder, folders, files in os.walk(tree, onerror=fail):
                for name in (*folders, *files):
                    _take_rights_of(f"{folder}/{name}")
    except OSError as error:
        raise InvalidRequest(
            f"what the command has left cannot be kept: {(error.strerror or str(error)).lower()}"
        ) from None


def _take_rights_of(path: str) -> None:
    mode = os.lstat(path).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISLNK(mode):
        os.chmod(path, stat.S_IMODE(mode) & 0o1777)
    elif stat.S_ISREG(mode):
        with contextlib.suppress(OSError):  # most have none
            os.removexattr(path, "security.capability", follow_symlinks=False)


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


async def _readable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(control.fileno(), tell)
    try:
        await ready
    finally:
        loop.remove_reader(control.fileno())
