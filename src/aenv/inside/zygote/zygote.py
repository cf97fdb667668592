"""The zygote: a process with everything loaded that instances need, from which they are forked.

The stager starts it. It loads our own modules; shuts itself in as an instance is shut in (a root of its own,
namespaces, seccomp, a control group); and only then loads the author's code, where that does the same for every
instance, and the modules of `preload`. From there on it may be the author's entirely. Two things are allowed to it
that an instance may not: to fork the first process of a pid namespace, and `setns` for that to enter its room. For
these it can use two capabilities over the second user namespace, and can never get another. There is nothing else
that they open, since seccomp refuses mounts and all other ways into namespaces.

One child of it forks what the stager asks for: processes that wait, each in a room of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import py_compile
import resource
import select
import signal
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from ...base import logs, settings
from ...base.errors import AEnvError
from ...isolation.sandbox import landlock, mounts, namespaces, protocol, seccomp, system
from ...isolation.sandbox.confine import CONTAINER_RIGHTS
from ...isolation.sandbox.inside_paths import ENVIRONMENT, WORKSPACE
from ...isolation.sandbox.orders import Stage, ZygoteOrder, task_from
from ..runtime import loader
from . import forked_loop, instance, preloaded, purity, rooms, warming

_ENVIRONMENT_PATH = Path(ENVIRONMENT)
_VIEW = mounts.InstanceView(64 << 20, 16 << 10, rooms.FOLDERS, own=True)
_TWO_MORE: dict[str, int | seccomp.Switch] = {
    "setns": seccomp.INTO_ROOMS,
    "clone": seccomp.NO_NAMESPACES_BUT_PIDS,
}
_LARGE = 1 << 20  # bytes: Python, its event loop, the C library
_SYS_CHROOT, _SYS_ADMIN = 18, 21  # what entering namespaces takes


def main() -> NoReturn:
    """Load what is ours, shut in, load what is the author's, and fork."""
    stager = socket.socket(fileno=int(sys.argv[1]))
    stager.set_inheritable(False)
    task, order = task_from(int(sys.argv[2]), ZygoteOrder)
    kept = _load_ours()
    rights = CONTAINER_RIGHTS if order.has_rights and not namespaces.has_one_id() else ()
    _shut_in(stager, task.stage, rights, host_network=order.host_network)
    try:
        image = _load_theirs(order, kept, rights)
    except BaseException:  # boundary: modules of the author's choice
        stager.send(protocol.encode(protocol.NotLoaded(f"it cannot be loaded ahead:\n{traceback.format_exc()}")))
        os._exit(1)
    stager.send(protocol.encode(protocol.Loaded(image.loaded is not None)))
    child = os.fork()
    if child == 0:
        _Forker(stager, image).run()
    os.waitpid(child, 0)
    os._exit(0)  # without it, this process is of no use


def _load_ours() -> list[int]:
    """Everything that a runtime will use. Returns the descriptors that each fork must keep."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    instance.fill_descriptors(instance.LISTENER + 1)
    before = instance.open_descriptors()
    warming.warm()
    # libuv keeps a pipe, and each fork gets one of its own in its place: with the same numbers, where none
    # below them is free. Without it the first program that an instance starts would be its end.
    kept = sorted(instance.open_descriptors() - before)
    instance.fill_descriptors(max(kept, default=0))
    _share_page_tables()
    logs.configure()
    settings.give({})
    settings.runtime_settings({"AENV_WORKSPACE": WORKSPACE})  # it keeps what it has made of that
    return kept


def _share_page_tables() -> None:
    """Let forks begin with the page tables of the large libraries' code.

    A fork copies those of memory that was written to, and no others. One byte, written as it was, makes code such
    memory; else each instance finds it in some sixty page faults.
    """
    with (
        contextlib.suppress(OSError),
        open("/proc/self/maps") as lines,
        open("/proc/self/mem", "r+b", 0) as memory,
    ):
        for place, rights, *_ in map(str.split, lines):
            begin, end = (int(number, 16) for number in place.split("-"))
            if rights == "r-xp" and end - begin >= _LARGE:
                memory.seek(begin)
                byte = memory.read(1)
                memory.seek(begin)
                memory.write(byte)


def _shut_in(stager: socket.socket, stage: Stage, rights: tuple[int, ...], *, host_network: bool) -> None:
    """Be as confined as an instance, but for what a fork needs to enter its room. Instances will have `rights`."""
    program = seccomp.compiled(changes={**_TWO_MORE, **(seccomp.FOR_ROOT if rights else {})})
    os.setsid()
    system.unshare("mount", "ipc", "uts", *([] if host_network else ["network"]))
    socket.sethostname("zygote")
    if not host_network:
        namespaces.bring_up_loopback()
    mounts.set_up_root(stage, _VIEW)
    _, descriptors, _, _ = socket.recv_fds(stager, 16, 1)
    if not descriptors or stager.recv(2) != b"go":
        os._exit(0)  # the stager does not wait for it any more
    system.unshare("cgroup")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 4  # the most that the engine gives to an instance
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # not 0: see `confine.py`
    # From here on it has no rights over what it is in: that is the first user namespace's.
    system.setns(descriptors[0], "user")
    os.close(descriptors[0])
    system.drop_bounding_capabilities(*rights)
    system.permit_capabilities(*{*rights, _SYS_CHROOT, _SYS_ADMIN})
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    if host_network:
        landlock.scope()
    seccomp.install(program)


def _load_theirs(order: ZygoteOrder, kept: list[int], rights: tuple[int, ...]) -> instance.ForkImage:
    """The environment, where loading it does the same for every instance; and what it asks for besides."""
    if order.requirements:
        # Here: a `.pth` file of a package that the author chose runs code.
        loader.add_requirements(Path(order.requirements))
    _compile_ahead(order.source)
    loaded = _load_ahead(order.source)
    prepared = preloaded.prepare(loaded) if loaded else None
    if loaded is None:
        sys.path.insert(0, order.source)
    for name in order.preload:
        importlib.import_module(name)
    # What this process may do besides is taken from its forks: with its own filter, that is an instance's.
    program = seccomp.taking_back(_TWO_MORE)
    gc.collect()
    gc.freeze()  # or looking at it would copy every page
    gc.disable()
    return instance.ForkImage(
        *(loaded, prepared, program, order.source, order.host_network),
        *(tuple(kept), forked_loop.lock_among(kept), bool(order.preload), rights),
    )


def _load_ahead(source: str) -> loader.LoadedProject | None:
    if not purity.is_same_for_all(source):
        return None
    try:
        return loader.load(_ENVIRONMENT_PATH)
    except AEnvError:
        return None  # an instance will say it again, to the caller who asked for it


def _compile_ahead(source: str) -> None:
    """Lay down the compiled form of the environment's code, for the stager to show to instances."""
    for file in loader.python_files(source):
        folder, name = os.path.split(file.removeprefix(ENVIRONMENT))
        place = f"{mounts.COMPILED}{folder}/__pycache__"
        with contextlib.suppress(py_compile.PyCompileError, OSError, RecursionError):  # told when it is loaded
            os.makedirs(place, exist_ok=True)
            target = f"{place}/{name[:-3]}.{sys.implementation.cache_tag}.pyc"
            py_compile.compile(file, target, doraise=True, quiet=2)


class _Forker:
    """The child that forks."""

    def __init__(self, stager: socket.socket, image: instance.ForkImage) -> None:
        self._stager = stager
        self._image = image
        self._forked: dict[int, int] = {}
        """Numbers, by pid."""

    def run(self) -> NoReturn:
        try:
            system.permit_capabilities(*{*self._image.rights, _SYS_CHROOT, _SYS_ADMIN}, in_use=True)
            forked_loop.run(self._fork(instance.open_descriptors()))
        except BaseException:  # boundary: a fork must not go on as its parent
            traceback.print_exc()
        finally:
            os._exit(1)

    async def _fork(self, before: set[int]) -> None:
        """Never waits for the loop that it runs on: that is for its forks."""
        loop = forked_loop.opened_since(before, instance.open_descriptors()) if self._image.loaded else None
        if loop:
            self._image = replace(self._image, kept=tuple(sorted({*self._image.kept, *loop.descriptors})))
        awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        if self._image.prepared:
            self._image.prepared.noted.hear()
        else:
            signal.signal(signal.SIGCHLD, lambda *_: None)
        # For its forks: the kernel drops signals of others to the first process of a pid namespace, but for those
        # that it handles. They handle SIGCHLD themselves as soon as they can have children.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        poll = select.poll()
        poll.register(self._stager, select.POLLIN)
        poll.register(awake, select.POLLIN)
        self._stager.send(protocol.WAITING)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == awake:
                    os.read(awake, 4096)
                    self._collect()
                elif (line := self._obey()) is not None:
                    await instance.begin(self._image, line, loop)

    def _say(self, message: object) -> None:
        self._stager.send(protocol.encode(message))

    def _obey(self) -> int | None:
        """Fork what the stager asks for; in the fork, its line."""
        packet, descriptors, _, _ = socket.recv_fds(self._stager, protocol.MAX_BYTES, 1)
        if not packet:
            os._exit(0)
        make = protocol.Make.unpacked(packet)
        try:
            pid = system.fork_as_init(tells_modules=self._image.has_preloaded)
        except OSError as error:
            self._say(protocol.NotForked(make.number, str(error), error.errno or 0))
        else:
            if pid == 0:
                return descriptors[0]
            self._forked[pid] = make.number
        os.close(descriptors[0])
        return None

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if (number := self._forked.pop(ended[0], None)) is not None:
                    self._say(protocol.Ended(number, ended[1]))


if __name__ == "__main__":
    main()
