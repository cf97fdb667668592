"""Runs a command that may be hostile: in view of few files, for so long, with all that it starts ended at the end.

A process of its own, from which the command's process is forked. It is the parent of whatever the command leaves
behind (a subreaper), so that nothing of it outlives the verdict. The command's processes are shut in by landlock:
the records, the reference solution and the runtime's memory are out of their reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_DEVICES = (1 << 6) | (1 << 11)
_SCOPED_SIGNALS = 2
_SCOPES = 1 | _SCOPED_SIGNALS  # abstract sockets, and signals, of those outside
_SCOPING_ABI = 6
_NO_NEW_PRIVS, _SUBREAPER = 38, 36
_LEAST_ABI = 2  # before it, no file could be moved to another folder
TIMED_OUT, UNCONFINED = 124, 125
_MOST_FILE_BYTES = 1 << 30
_ROUNDS = 50


def landlock_version() -> int:
    """Which landlock this kernel has; 0 for none."""
    try:
        return _call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def main() -> None:
    """Run what the order on stdin says, and say on stdout how it ended: an exit code, as JSON."""
    # Before anything is started: ending this process ends all of it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TIMED_OUT))
    order = json.loads(sys.stdin.buffer.read())
    _prctl(_SUBREAPER, 1)
    is_scoped = _scope_signals()
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _become(order)
        except BaseException as error:  # boundary: nothing may run on in the child's place
            os.write(2, f"the tests cannot be shut in: {error}\n".encode())
        os._exit(UNCONFINED)
    if "pipe" in order:
        os.close(order["pipe"])  # the reader waits for its end
    try:
        code = _wait(child, order["timeout"])
    finally:
        _end_all(is_scoped)
    print(json.dumps({"code": code}))


def _become(order: dict[str, Any]) -> None:
    os.setsid()
    out = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    given = os.memfd_create("order")
    os.write(given, order["stdin"].encode())
    os.lseek(given, 0, os.SEEK_SET)
    for source, target in ((given, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    pipe = order.get("pipe", 3)
    os.closerange(3, pipe)
    os.closerange(pipe + ("pipe" in order), 1024)
    if "pipe" in order:
        os.set_inheritable(pipe, True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(order["folder"])
    if order["confined"]:
        restrict(order["readable"], order["writable"])
    os.execve(order["command"][0], order["command"], order["variables"])


def restrict(readable: list[str], writable: list[str]) -> None:
    """This process, and whatever it starts, reaches only these from now on."""
    version = landlock_version()
    if version < _LEAST_ABI:
        raise OSError("this kernel has no landlock that would do")
    rights = (1 << 14) - 1 | (_TRUNCATE if version >= 3 else 0) | (_IOCTL if version >= 5 else 0)
    attributes = [rights, 0, _SCOPES] if version >= _SCOPING_ABI else [rights]
    packed = b"".join(word.to_bytes(8, sys.byteorder) for word in attributes)
    ruleset = _call(_CREATE_RULESET, packed, len(packed), 0)
    reading = rights & (_EXECUTE | _READ | _LIST | _IOCTL)
    for path, allowed in [*((one, reading) for one in readable), *((one, rights & ~_DEVICES) for one in writable)]:
        if os.path.exists(path):
            _allow(ruleset, path, allowed if os.path.isdir(path) else allowed & _OF_FILES)
    _prctl(_NO_NEW_PRIVS, 1)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
    _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(place)


def _wait(child: int, timeout: float) -> int:
    """The exit code of the command, as shells say it."""
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    until = time.monotonic() + timeout
    while not poll.poll(max(0, min(until - time.monotonic(), 3600)) * 1000):
        if time.monotonic() >= until:
            return TIMED_OUT
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _scope_signals() -> bool:
    """Whether signals of this process now reach none but its descendants, which a signal to all can then end."""
    if landlock_version() < _SCOPING_ABI:
        return False
    packed = b"".join(word.to_bytes(8, sys.byteorder) for word in (0, 0, _SCOPED_SIGNALS))
    ruleset = _call(_CREATE_RULESET, packed, len(packed), 0)
    _prctl(_NO_NEW_PRIVS, 1)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    return False  # not so after all: a signal to all would end this host


def _end_all(is_scoped: bool) -> None:
    """Kill all that is left below this process.

    At one stroke where that reaches no other process: what forks and exits without end is never caught by its
    number. Else in rounds, since what is killed may just have started more.
    """
    for _ in range(_ROUNDS):
        below = _descendants()
        if not below:
            return
        if is_scoped:
            os.kill(-1, signal.SIGKILL)
        for pid in below:
            _end(pid)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _end(pid: int) -> None:
    """Kill a process, and wait for its end: for its own, since one that was started meanwhile may go on."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it is gone
        return
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll()
    os.close(handle)


def _descendants() -> set[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {os.getpid(), *found}} - found:
        found |= more
    return found


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _call(number: int, *arguments: Any) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
