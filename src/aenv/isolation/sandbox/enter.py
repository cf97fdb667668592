"""Running a command where another process is: in its namespaces and control groups, and as confined.

    python -m aenv.isolation.sandbox.enter

What to do is read from descriptor 3, as an `EnterOrder`: arguments can be read by every user in the process list.
Descriptor 4 is closed when the instance has been entered.
Exits as the command does: with its code, or by its signal. Its caller gives it a session of its own, and ends the
command by ending the session.
"""

# No postponed annotations here: `decode` reads the types of the fields.

import contextlib
import errno
import json
import os
import signal
import stat
import sys
from dataclasses import dataclass
from typing import NoReturn

from . import seccomp, system
from .confine import confine
from .inside_paths import OOM_SCORE, VARIABLES
from .typed_json import Broken, decode

_MAX_VARIABLES_BYTES = 4 << 20
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NOT_EXECUTABLE = 126  # the exit codes that shells use
_NOT_FOUND = 127
_TEXT = "AENV_COMMAND"
_ORDER = 3
_UNLOCK, _OPEN_PEER = 0x40045431, 0x5441  # TIOCSPTLCK, TIOCGPTPEER
_BEGUN = 4


@dataclass(frozen=True)
class EnterOrder:
    pid: int
    """Of the first process of the instance; with `start_time` it means no other."""
    start_time: int
    open_files: int
    shares_network: bool
    """Whether the instance is in the host's network."""
    groups: tuple[str, ...]
    """The folders of its control groups."""
    command: tuple[str, ...]
    terminal: bool = False
    """Whether the command gets a terminal and a session. Descriptor 0 is then a socket, for the other end."""


def main() -> NoReturn:
    system.close_from(_BEGUN + 1)
    os.set_inheritable(_BEGUN, False)
    _raise_oom_score()
    program = seccomp.compiled()
    try:
        with open(_ORDER, "rb") as file:
            order = decode(file.read(), EnterOrder, most_bytes=None)
        for folder in order.groups:
            _join(folder)
        enter(order.pid, order.start_time)
        if order.terminal:
            _open_terminal()
    except (OSError, Broken) as error:
        text = f"the instance cannot be entered: {error}\n"
        os.write(0 if stat.S_ISSOCK(os.fstat(0).st_mode) else 2, text.encode(errors="replace"))
        os._exit(_NOT_EXECUTABLE)
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # the command gets them too, as it is in the same process group
    child = os.fork()  # only a child is in the pid namespace
    os.close(_BEGUN)
    if child:
        _exit_like(child)
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    if order.terminal:  # here: ids of sessions and groups mean nothing in another pid namespace
        _become_leader()
    system.unshare("cgroup")
    system.drop_bounding_capabilities()
    confine(program, open_files=order.open_files, shares_network=order.shares_network)
    _execute(order.command)


def enter(pid: int, start_time: int) -> None:
    """Be where the process is, as id 0 there. ProcessLookupError when it is not the one that is meant."""
    handle = os.pidfd_open(pid)
    try:
        # Asked when it is open: the descriptor does not mean a process that gets the number later.
        if _start_time(pid) != start_time:
            raise ProcessLookupError(pid, "it has ended")
        # Not those that are ours as well: an ordinary user may not enter the host's, though they are in it.
        system.setns(handle, *(kind for kind, file in system.NAMESPACE_FILES.items() if _differs(pid, file)))
    finally:
        os.close(handle)
    with contextlib.suppress(PermissionError):  # an ordinary user's namespace has no other groups
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _open_terminal() -> None:
    """One of the instance, so that programs find it at its name. Its outer end is sent through descriptor 0."""
    import fcntl
    import socket

    outer = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(outer)
    # Code in the instance may have put something else there.
    if not stat.S_ISCHR(status.st_mode) or status.st_rdev != os.makedev(5, 2):
        raise OSError(errno.ENODEV, "what it has at /dev/pts/ptmx is not a terminal")
    fcntl.ioctl(outer, _UNLOCK, bytes(4))
    inner = fcntl.ioctl(outer, _OPEN_PEER, os.O_RDWR | os.O_NOCTTY)
    with socket.socket(fileno=os.dup(0)) as channel:
        socket.send_fds(channel, [b"terminal"], [outer])
    os.close(outer)
    for number in range(3):
        os.dup2(inner, number)
    os.close(inner)


def _become_leader() -> None:
    """Begin a session, whose terminal is the one at descriptor 0."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _raise_oom_score() -> None:
    """As for the instance's other processes. It stays so, since /proc is read-only inside."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # higher already
        file.write(OOM_SCORE)


def _execute(command: tuple[str, ...]) -> NoReturn:
    variables = _variables()
    match command:
        case ["/bin/sh", "-c", text]:
            # Every user can read the arguments of a process, but not its variables. The first word removes it.
            variables[_TEXT] = text
            command = "/bin/sh", "-c", f'eval "unset {_TEXT}; ${_TEXT}"'
    with contextlib.suppress(OSError):
        os.chdir(variables.get("AENV_WORKSPACE", "/"))
    try:
        os.execvpe(command[0], command, variables)
    except FileNotFoundError:
        reason, code = "not found", _NOT_FOUND
    except OSError as error:
        reason, code = (error.strerror or str(error)).lower(), _NOT_EXECUTABLE
    print(f"{command[0]}: {reason}", file=sys.stderr, flush=True)
    os._exit(code)


def _variables() -> dict[str, str]:
    """Those of the instance, which keeps them in a file; code in it may have spoilt that."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        handle = os.open(VARIABLES, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            with open(handle, "rb") as file:
                pairs = json.loads(file.read(_MAX_VARIABLES_BYTES)).items()
            return {name: value for name, value in pairs if _is_text(name, "=\0") and _is_text(value, "\0")}
    return {"PATH": os.defpath}


def _is_text(value: object, forbidden: str) -> bool:
    return isinstance(value, str) and not any(character in value for character in forbidden)


def _join(folder: str) -> None:
    with open(f"{folder}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))


def _exit_like(child: int) -> NoReturn:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _differs(pid: int, file: str) -> bool:
    return os.stat(f"/proc/{pid}/ns/{file}").st_ino != os.stat(f"/proc/self/ns/{file}").st_ino


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


if __name__ == "__main__":
    main()
