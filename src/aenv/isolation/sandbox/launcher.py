"""Launching a program on a stage: in namespaces of its own, where it sees nothing of the host but the stage.

    python -m aenv.isolation.sandbox.launcher DESCRIPTOR

The descriptor is a socket on which the order comes (`orders.py`). The launcher waits until all is over. The
program, `python -m PROGRAM DESCRIPTOR TASK`, where TASK is a descriptor of a file, is either the first process of
the pid namespace itself, as a stager is; or is started by a reaper, which is that, and outlives the program as
long as anything else lives in it.

A stager can ask for a second user namespace, in which the mounts of the stage are locked: it makes one, says so on
the descriptor `nested` of its task, and the launcher, which is one level above, maps the ids.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from ...base.limits import allow_many_open_files
from . import mounts, namespaces, system
from .inside_paths import OOM_SCORE
from .orders import MAX_ORDER, Bind, BuildOrder, LaunchOrder, NotStarted, Stage, StageTask, ZygoteOrder, task_file
from .typed_json import Broken, decode, encode

INTERPRETER = "/aenv"
"""Where the host's system folders are in a root that has its own: for the interpreter alone."""
_RESOLVER = "/etc/resolv.conf"  # in the host's network, names are looked up as on the host


def main() -> NoReturn:
    """Launch the others, and wait until the last of them has ended."""
    control = socket.socket(fileno=int(sys.argv[1]))
    system.close_from(control.fileno() + 1)  # whatever the gateway was started with
    packet = control.recv(MAX_ORDER)
    try:
        order = decode(packet, ZygoteOrder, BuildOrder, most_bytes=MAX_ORDER)
        _prepare()
        stage, owner = _make_namespaces(order)
        match order:
            case ZygoteOrder():
                _lead(control, stage, order, owner)
            case BuildOrder():
                task = StageTask(stage, order, owner)
                fork(lambda: _reap(lambda: _execute(control, task)))
    except (OSError, Broken) as error:
        control.send(encode(NotStarted(str(error))))
        os._exit(1)
    control.close()
    _wait_for_all()
    os._exit(0)


def _lead(control: socket.socket, stage: Stage, order: ZygoteOrder, owner: int) -> None:
    """Start the stager as first process, and map the ids of its second user namespace."""
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)
    task = StageTask(stage, order, owner, nested=theirs.fileno())
    first = fork(lambda: _execute(control, task))
    with ours:
        theirs.close()
        if ours.recv(1):
            namespaces.map_same_ids(first)
            ours.send(b"+")


def fork(then: Callable[[], NoReturn]) -> int:
    """A child that does `then`, and nothing else."""
    pid = os.fork()
    if pid:
        return pid
    try:
        then()
    except BaseException:  # boundary: a fork must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(1)


def _prepare() -> None:
    allow_many_open_files()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # higher already
        file.write(OOM_SCORE)


def _make_namespaces(order: LaunchOrder) -> tuple[Stage, int]:
    """Leave the host's namespaces for new ones, with the stage as their root."""
    binds = [*order.binds]
    if order.host_network and os.path.isfile(_RESOLVER):
        binds.append(Bind(os.path.realpath(_RESOLVER), _RESOLVER, is_ours=False))
    if _brings_interpreter(order):
        binds += [Bind(path, f"{INTERPRETER}{path}", is_ours=False) for path in mounts.system_folders()]
    user = namespaces.user_namespace()
    if namespaces.is_root():
        # Root sees what others may not, and shows it with other owners; then it is root no longer.
        system.unshare("mount")
        stage = mounts.make_stage(order, binds, shown_to=user)
        namespaces.enter(user.descriptor)
        system.unshare("mount")
    else:
        namespaces.enter(user.descriptor)
        system.unshare("mount")
        stage = mounts.make_stage(order, binds, shown_to=None)
    system.unshare("pid", "ipc", "uts", *([] if order.host_network else ["network"]))
    os.close(user.descriptor)
    _leave_watches()
    return stage, user.owner


def _leave_watches() -> None:
    """What watches files is counted for a user as a whole: leave the half of it to the host."""
    with open("/proc/sys/fs/inotify/max_user_instances") as file:
        half = int(file.read()) // 2
    with contextlib.suppress(OSError), open("/proc/sys/user/max_inotify_instances", "w") as limit:  # before 4.13
        limit.write(str(half))


def _reap(then: Callable[[], NoReturn]) -> NoReturn:
    """As first process of the pid namespace: all others end with it, so it stays until there are none."""
    fork(then)
    system.close_from(3)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait_for_all()
    os._exit(0)


def _execute(control: socket.socket, task: StageTask) -> NoReturn:
    """Start Python anew, so that what runs is a file of the stage: the host's own could be written to."""
    file = task_file(task)
    os.set_inheritable(control.fileno(), True)
    # A stager needs nothing but our own modules; and is to be small, since it forks much.
    flags = ["-S", "-P"] if isinstance(task.order, ZygoteOrder) else ["-P"]
    words = [sys.executable, *flags, "-m", task.order.program, str(control.fileno()), str(file)]
    if _brings_interpreter(task.order):
        os.execve(sys.executable, words, _with_interpreter())
    os.execv(sys.executable, words)


def _brings_interpreter(order: LaunchOrder) -> bool:
    """Whether the program goes on in a root that has no system of the host, where it must find its own modules."""
    return "/usr" not in order.system and order.goes_inside


def _with_interpreter() -> dict[str, str]:
    """Our variables, changed so that Python and the linker look where everything is on the stage and inside."""
    from ...base import settings  # costs some milliseconds, and most roots do without

    variables = settings.variables()
    moved = {**variables, "PYTHONPATH": ":".join(map(_inside, variables.get("PYTHONPATH", "").split(":")))}
    if _inside(sys.base_prefix) != sys.base_prefix:
        moved["PYTHONHOME"] = _inside(sys.base_prefix)
    with open("/proc/self/maps") as file:
        mapped = [line.split(maxsplit=5)[5].strip() for line in file if ".so" in line]
    libraries = dict.fromkeys(os.path.dirname(path) for path in mapped)
    # Those that the interpreter has brought come first: the system may have others of the same name.
    moved["LD_LIBRARY_PATH"] = ":".join(
        sorted(map(_inside, libraries), key=lambda path: path.startswith(INTERPRETER))
    )
    return moved


def _inside(path: str) -> str:
    is_system = any(path == folder or path.startswith(f"{folder}/") for folder in mounts.system_folders())
    return f"{INTERPRETER}{path}" if is_system else path


def _wait_for_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


if __name__ == "__main__":
    main()
