"""A command that makes a layer of a root, on a stage: it writes into folders that are kept, and then all ends.

`aenv.isolation.sandbox.launcher` starts this for `build_run.py`, with which it speaks over one socket:

    run → step   nothing; when the socket closes, the command is to end
    step → run   `Printing` with the pipe that the command prints to; `CommandEnded`

Two more processes are made: the first one of a pid namespace of its own, which sets up the root and gives up every
right that package managers do without; and the command.
"""

# No postponed annotations here: `decode` reads the types of the fields.

import os
import resource
import select
import signal
import socket
import sys
from dataclasses import dataclass
from typing import NoReturn

from . import landlock, mounts, namespaces, seccomp, system
from .launcher import fork
from .orders import BuildOrder, Stage, task_from
from .typed_json import encode

KEPT = "/kept"
"""Where on the stage the folders are that keep what is written."""
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, sys_chroot, setfcap: what package managers do with the
# files and accounts of their root. In a user namespace none of them reaches further than that.
_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 18, 31)
ONE_ID = "who started the gateway is an ordinary user, and has one id alone"
_PROCESSES = 4096
_OPEN_FILES = 65536
_NOT_EXECUTABLE = 126  # the exit codes that shells use
_NOT_FOUND = 127


@dataclass(frozen=True)
class Printing:
    """Step → run: the command is about to start. Comes with the pipe that it prints to."""


@dataclass(frozen=True)
class CommandEnded:
    """Step → run: nothing of the command is left; `status` is its exit status, as shells give it."""

    status: int


def main() -> NoReturn:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    task, order = task_from(int(sys.argv[2]), BuildOrder)
    alone = namespaces.has_one_id()
    program = seccomp.compiled(changes=seccomp.FOR_ROOT_ALONE if alone else seccomp.FOR_ROOT)
    # Made here, or the command could not open it again by its name, as /dev/stderr.
    reading, writing = os.pipe()
    system.unshare("pid")
    first = fork(lambda: _lead(control, task.stage, order, program, writing, alone=alone))
    socket.send_fds(control, [encode(Printing())], [reading])
    os.close(reading)
    os.close(writing)
    status = _wait(control, first)
    if status is not None:
        control.send(encode(CommandEnded(status)))
    os._exit(0)


def _wait(control: socket.socket, first: int) -> int | None:
    """The exit status of the command; None when the build has given up."""
    handle = os.pidfd_open(first)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(handle, select.POLLIN)
    ready = [descriptor for descriptor, _ in poll.poll()]
    if handle not in ready:
        os.kill(first, signal.SIGKILL)  # and with it all that is in its pid namespace
    _, status = os.waitpid(first, 0)
    if handle not in ready:
        return None
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _lead(
    control: socket.socket, stage: Stage, order: BuildOrder, program: bytes, output: int, *, alone: bool
) -> NoReturn:
    """As first process: set everything up, start the command, and end with it."""
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    control.close()
    os.dup2(output, 1)
    os.dup2(output, 2)
    system.close_from(3)
    os.setsid()
    try:
        _isolate(stage, order)
        _confine(program, shares_network=order.host_network)
    except OSError as error:
        print(f"the command cannot be isolated: {error}", flush=True)
        os._exit(_NOT_EXECUTABLE)
    command = fork(lambda: _execute(order, alone=alone))
    while True:
        ended, status = os.waitpid(-1, 0)  # also those whose parents are gone
        if ended == command:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _isolate(stage: Stage, order: BuildOrder) -> None:
    system.unshare("mount")
    if not order.host_network:
        namespaces.bring_up_loopback()
    socket.sethostname("build")
    os.umask(0o022)
    mounts.set_up_root(stage, mounts.InstanceView(1 << 20, 64, uppers=order.uppers))
    system.unshare("cgroup")


def _confine(program: bytes, *, shares_network: bool) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, most),) * 2)
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    count = _PROCESSES if most == resource.RLIM_INFINITY else min(_PROCESSES, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (count, count))
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # not 0: see `confine.py`
    system.drop_bounding_capabilities(*_CAPABILITIES)
    system.permit_capabilities(*_CAPABILITIES, in_use=True)
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(["/"], ["/"], scoped=shares_network)
    seccomp.install(program)
    # What we know of the host is not for the command, which could look into our memory; its own it can.
    system.prctl(system.PR_SET_DUMPABLE, 0)


def _execute(order: BuildOrder, *, alone: bool) -> NoReturn:
    command = order.command
    try:
        user, group, groups = _ids(order.user)
        if alone and user:
            print(f"USER {order.user} has no effect: {ONE_ID}", flush=True)
        elif user or group:
            _become(user, group, groups)
        os.chdir(order.folder)
        os.execvpe(command[0], command, order.variables)
    except FileNotFoundError as error:
        reason, code = f"{error.filename or command[0]}: not found", _NOT_FOUND
    except _Unknown as error:
        reason, code = str(error), _NOT_EXECUTABLE
    except OSError as error:
        reason, code = f"{error.filename or command[0]}: {(error.strerror or str(error)).lower()}", _NOT_EXECUTABLE
    print(reason, flush=True)
    os._exit(code)


class _Unknown(Exception):
    """Why the command cannot have the user that it asks for."""


def _become(user: int, group: int, groups: list[int]) -> None:
    os.fchown(1, user, group)  # for /dev/stdout
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _ids(spelled: str) -> tuple[int, int, list[int]]:
    """User, group and further groups of "name", "name:group", or numbers: as the root's own files say."""
    name, _, wanted = spelled.partition(":")
    if name in ("", "0", "root") and not wanted:
        return 0, 0, []
    user, group, groups = _number(name), None, []
    for words in _lines("/etc/passwd", 4):
        if name in (words[0], words[2]):
            name, user, group = words[0], _number(words[2]), _number(words[3])
            break
    if user is None:
        raise _Unknown(f"there is no user {name!r} in /etc/passwd; make it with RUN useradd, or write its number")
    for words in _lines("/etc/group", 3):
        number = _number(words[2])
        if wanted and words[0] == wanted:
            return user, number or 0, []
        if not wanted and number is not None and name in words[-1].split(","):
            groups.append(number)
    if wanted:
        group = _number(wanted)
        if group is None:
            raise _Unknown(f"there is no group {wanted!r} in /etc/group; make it with RUN groupadd")
        return user, group, []
    return user, group or 0, groups


def _lines(path: str, least: int) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = [line.rstrip("\n").split(":") for line in file]
    except FileNotFoundError:
        return []
    return [each for each in words if len(each) >= least]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() else None


if __name__ == "__main__":
    main()
