"""Starting programs without holding anything up.

`subprocess` and `os.posix_spawn` keep every thread of Python waiting until the new process has executed its
program, which takes long on a busy host. The C library's own `posix_spawn`, called from a thread, keeps only that
thread waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_libc = ctypes.CDLL(None)
_SET_SIGNALS = 0x04
_SET_SESSION = 0x80
_ROOM = 1024  # bytes for each of the C library's structures, which are smaller
_ABOVE = 16  # no descriptor that is handed over has a number that another one gets in the new process


class Child:
    """A process that was started here, and is to be waited for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, or the number of the signal that ended it, negative."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


async def started(threads: ThreadPoolExecutor, start: Callable[[], Child]) -> Child:
    """What `start` gives, called in a thread. A caller that is cancelled meanwhile leaves no process."""
    child = asyncio.get_running_loop().run_in_executor(threads, start)
    try:
        return await asyncio.shield(child)
    except asyncio.CancelledError:
        while not child.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({child})
        with contextlib.suppress(OSError, ValueError):
            child.result().kill()
            child.result().wait()
        raise


def start(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    descriptors: Sequence[int],
    *,
    terminal: str = "",
) -> Child:
    """A program in a session of its own. It has these descriptors as 0, 1, 2 and so on, and no others.

    `terminal`: the path of one that becomes the terminal of the session; descriptor 0 should be it, too.

    OSError when it cannot be executed, ValueError when its words or variables cannot be told. For a thread.
    """
    for text in (*words, *variables, *variables.values()):
        if "\0" in text:
            raise ValueError("embedded null byte")
    with contextlib.ExitStack() as stack:
        handed = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for descriptor in descriptors]
        for descriptor in handed:
            stack.callback(os.close, descriptor)
        attributes, actions = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
        _checked(_libc.posix_spawnattr_init(attributes))
        stack.callback(_libc.posix_spawnattr_destroy, attributes)
        _checked(_libc.posix_spawn_file_actions_init(actions))
        stack.callback(_libc.posix_spawn_file_actions_destroy, actions)
        _set(attributes)
        if terminal:  # the leader of a session that has none gets the first one that it opens
            _checked(_libc.posix_spawn_file_actions_addopen(actions, 0, os.fsencode(terminal), os.O_RDWR, 0))
        for number, descriptor in enumerate(handed):
            _checked(_libc.posix_spawn_file_actions_adddup2(actions, descriptor, number))
        if hasattr(_libc, "posix_spawn_file_actions_addchdir_np"):
            _checked(_libc.posix_spawn_file_actions_addchdir_np(actions, os.fsencode(folder)))
        else:  # glibc before 2.29
            words = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder), *words]
        if hasattr(_libc, "posix_spawn_file_actions_addclosefrom_np"):
            _checked(_libc.posix_spawn_file_actions_addclosefrom_np(actions, len(handed)))
        else:  # glibc before 2.34
            for descriptor in _inherited(len(handed)):
                _checked(_libc.posix_spawn_file_actions_addclose(actions, descriptor))
        given = _array([f"{name}={value}" for name, value in variables.items()])
        return Child(_spawned(words, variables, attributes, actions, given))


def _set(attributes: ctypes.Array[ctypes.c_char]) -> None:
    """A session of its own, and the signals as they are usually, which Python ignores."""
    signals = ctypes.create_string_buffer(_ROOM)
    _libc.sigemptyset(signals)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        _libc.sigaddset(signals, int(number))
    _checked(_libc.posix_spawnattr_setsigdefault(attributes, signals))
    _checked(_libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SET_SIGNALS | _SET_SESSION)))


def _spawned(
    words: Sequence[str],
    variables: Mapping[str, str],
    attributes: ctypes.Array[ctypes.c_char],
    actions: ctypes.Array[ctypes.c_char],
    given: ctypes.Array[ctypes.c_char_p],
) -> int:
    """Look for the program where the variables say, as a shell does."""
    pid = ctypes.c_int()
    told = _array(words)
    name = words[0]
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in os.get_exec_path(variables)]
    failed = errno.ENOENT
    for place in places:
        number = _libc.posix_spawn(ctypes.byref(pid), os.fsencode(place), actions, attributes, told, given)
        if not number:
            return pid.value
        if number not in (errno.ENOENT, errno.ENOTDIR):
            failed = number
    raise OSError(failed, os.strerror(failed), name)


def _inherited(first: int) -> list[int]:
    """The open descriptors from `first` on that a new program would get."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # closed since
            if number >= first and os.get_inheritable(number):
                found.append(number)
    return found


def _array(words: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)


def _checked(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))
