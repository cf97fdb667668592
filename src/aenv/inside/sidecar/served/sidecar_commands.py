"""What the sidecar of an instance does for the main part: it runs commands, and reads and writes files.

It runs in an image that need not have Python: what it needs is loaded before it gets there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import select
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from aenv import Context, register_function
from aenv.base.errors import InvalidRequest, NotFound, TooLarge
from aenv.inside.author.sidecar_replies import CommandReply, packed
from aenv.isolation.sandbox import system

TIMED_OUT, NOT_EXECUTABLE, NOT_FOUND = 124, 126, 127  # the exit codes that shells and timeout(1) use
MAX_OUTPUT_BYTES = 4 << 20  # of each stream
MAX_FILE_BYTES = 32 << 20  # so that it fits into a message
_PIPE_BYTES = 1 << 20  # the most that a pipe holds
_ROUNDS = 100  # in which a session is ended; one that starts processes as fast as they are killed stays
_DIES_MS = 100  # how long a process that was killed is waited for


class Children:
    """Collects every process that ends: the commands, and what they left behind, whose parent is now this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._early: dict[int, int] = {}
        self._starting = 0
        threading.Thread(target=self._collect, name="children", daemon=True).start()

    def start(self, command: list[str], **options: Any) -> tuple[subprocess.Popen[bytes], asyncio.Future[int]]:
        """A new process, and its wait status when it has ended."""
        made: list[subprocess.Popen[bytes]] = []

        def start() -> int:
            made.append(subprocess.Popen(command, bufsize=0, start_new_session=True, **options))
            return made[0].pid

        _, ended = self.track(start)
        return made[0], ended

    def track(self, start: Callable[[], int]) -> tuple[int, asyncio.Future[int]]:
        """A process that `start` makes, by its number, and its wait status when it has ended."""
        with self._lock:
            self._starting += 1
        try:
            pid = start()
            ended = asyncio.get_running_loop().create_future()
            with self._lock:
                self._waiting[pid] = ended
                if (status := self._early.pop(pid, None)) is not None:
                    self._tell(pid, status)
        finally:
            with self._lock:
                self._starting -= 1
                if not self._starting:
                    self._early.clear()
        self._some.set()
        return pid, ended

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                self._some.wait()
                self._some.clear()
                continue
            with self._lock:
                if pid in self._waiting:
                    self._tell(pid, status)
                elif self._starting:
                    self._early[pid] = status

    def _tell(self, pid: int, status: int) -> None:
        ended = self._waiting.pop(pid)
        ended.get_loop().call_soon_threadsafe(ended.set_result, status)


class CappedOutput:
    """What comes out of a pipe: the beginning is kept; the rest is dropped, so that the command goes on."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.data = bytearray()
        self.is_cut = False
        os.set_blocking(pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._pipe.fileno(), _PIPE_BYTES)
            if not piece:
                asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            room = MAX_OUTPUT_BYTES - len(self.data)
            self.data += piece[:room]
            self.is_cut = self.is_cut or len(piece) > room

    def close(self) -> None:
        """Take what is there. What comes later is from processes that were left running, and not waited for."""
        self._read()
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.close()


# With vfork the thread that starts a command blocks all signals until the command runs. The kernel does not drop a
# signal to the first process of a pid namespace that is blocked so: another thread gets it, and the process ends.
subprocess._USE_VFORK = False  # type: ignore[misc]
children = Children()
# Commands are an agent's or an author's; none of them may look into this process, or change it.
system.prctl(system.PR_SET_DUMPABLE, 0)


@register_function
async def run(
    context: Context, command: list[str], stdin: str, timeout: float | None, folder: str, variables: dict[str, str]
) -> dict[str, Any]:
    """Run a command; its exit code, and what it printed."""
    try:
        if not folder:
            context.workspace.mkdir(
                parents=True, exist_ok=True
            )  # an image may name a folder that it does not have
        with _stdin(base64.b64decode(stdin)) as file:
            child, ended = children.start(
                command,
                cwd=context.workspace / folder,
                env={**context.variables, **variables},
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        reason = "not found" if code == NOT_FOUND else (error.strerror or str(error)).lower()
        printed = f"{error.filename or command[0]}: {reason}\n".encode(errors="replace")
        return vars(reply(code, b"", printed))
    except ValueError as error:
        raise InvalidRequest(f"cannot run {command[0]!r}: {error}") from None
    outputs = [CappedOutput(child.stdout), CappedOutput(child.stderr)]
    try:
        code = await exit_code(ended, timeout)
    finally:
        if not ended.done():
            end_session(child.pid)
        for output in outputs:
            output.close()
    out, err = outputs
    return vars(reply(code, out.data, err.data, out.is_cut or err.is_cut))


@register_function
def read_file(context: Context, path: str) -> str:
    """The content of a file."""
    with _reported(path):
        # Without waiting: it may be a pipe that no process writes to.
        handle = os.open(context.workspace / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidRequest(f"{path!r} is not a file in the sidecar")
            data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise TooLarge(f"{path!r} has more than {MAX_FILE_BYTES >> 20} MiB; read parts of it with a command")
    return packed(data)


@register_function
def write_file(context: Context, path: str, data: str) -> None:
    """Write a file, and make the folders above it."""
    place = context.workspace / path
    with _reported(path):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidRequest(f"{path!r} is not a file in the sidecar")
            file.write(base64.b64decode(data))


async def exit_code(ended: asyncio.Future[int], timeout: float | None) -> int:
    try:
        async with asyncio.timeout(timeout):
            code = os.waitstatus_to_exitcode(await asyncio.shield(ended))
    except TimeoutError:
        return TIMED_OUT
    return code if code >= 0 else 128 - code


def reply(code: int, out: bytes | bytearray, err: bytes | bytearray, is_cut: bool = False) -> CommandReply:
    return CommandReply(code, packed(out), packed(err), is_cut)


@contextlib.contextmanager
def _stdin(data: bytes) -> Iterator[Any]:
    if not data:
        yield subprocess.DEVNULL
        return
    # A file in memory: it has an end, and no thread needs to feed it while the command runs.
    with open(os.memfd_create("stdin"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


def end_session(leader: int) -> None:
    """Kill the session of a command, in rounds: what is being killed may have just started something else."""
    for _ in range(_ROUNDS):
        members = [pid for pid in pids() if _session(pid) == leader]
        if not members:
            return
        kill(members, *members)


def kill(ending: Iterable[int], *targets: int) -> None:
    """Kill the targets of kill(2), and wait for a moment until those processes that are `ending` have ended."""
    poll, handles = select.poll(), []
    for pid in ending:
        with contextlib.suppress(ProcessLookupError):
            handles.append(os.pidfd_open(pid))
            poll.register(handles[-1], select.POLLIN)
    for target in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
    for handle in handles:
        poll.poll(_DIES_MS)
        poll.unregister(handle)
        os.close(handle)


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _session(pid: int) -> int | None:
    """The session of a process; None when it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] not in (b"Z", b"X"):
            return int(fields[3])
    return None


@contextlib.contextmanager
def _reported(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"no file {path!r} in the sidecar") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InvalidRequest(f"{path!r} in the sidecar: {reason.lower()}") from None
