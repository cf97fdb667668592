"""The zygote: a process with everything loaded that instances need, from which they are forked.

`aenv.sandbox.launch` starts it, in namespaces of its own, on a stage that holds what its instances will see. It
runs no code of the environment but the modules that are to be loaded once (`preload`), and does what it is told:

    engine → zygote  {"fork": n, "view": …, …} with the instance's channel
    zygote → engine  {"started": true}; {"forked": n} with a pidfd; {"ended": n, "status": s}
    engine → instance, on its channel: "go" once it is in its control groups; then its assignment with a listener
    instance → engine  {"isolated": […]} with its log, and the listeners that are named: where asked for, of its
                       way out and for its second part; {"ready": …}, as every runtime: when it serves, or, where
                       its environment is loaded ahead, when it is, and where asked for once more when it serves
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import py_compile
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from .. import logs, mcp, settings
from ..errors import AEnvError
from ..runtime import loader, program
from ..sandbox import mounts, namespaces, seccomp, system
from ..sandbox.confine import confine
from ..sandbox.places import ENVIRONMENT, LOG, VARIABLES, WORKSPACE
from . import purity, waiting, warming
from .ahead import Ahead, Spare

logger = logging.getLogger("aenv.boot.zygote")

MAX_MESSAGE = 1 << 20
_ENVIRONMENT_PATH = Path(ENVIRONMENT)

_COMPILED = f"{mounts.OWN}/compiled"

_NEVER = (
    *("add_key", "bpf", "delete_module", "finit_module", "init_module", "io_uring_setup", "kexec_file_load"),
    *(
        "keyctl",
        "perf_event_open",
        "process_vm_readv",
        "process_vm_writev",
        "ptrace",
        "request_key",
        "userfaultfd",
    ),
)
_fork_only = ctypes.PyDLL(None, use_errno=True).fork
_CHANNEL = 3  # the descriptors of an instance, besides the three that every process has
_LISTENER = 4
_UNDISTURBED = 20  # milliseconds: longer than a start takes


def main() -> NoReturn:
    """Load everything, and fork until nobody asks any more."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    with open(int(sys.argv[2]), "rb") as file:
        told = json.load(file)
    _Zygote(control, mounts.Stage(**told["stage"]), told["order"]).run()


@dataclass
class _Zygote:
    """The process that instances are forked from."""

    control: socket.socket
    stage: mounts.Stage
    order: dict[str, Any]

    def run(self) -> NoReturn:
        with contextlib.suppress(AttributeError):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        self._filter = seccomp.compiled()
        seccomp.install(seccomp.without(*_NEVER))  # for modules that are loaded ahead
        # Of no use to a process that starts no program; and so each instance need not do it.
        system.drop_bounding_capabilities()
        self._load()
        logs.configure()
        settings.give({})
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._ahead = Ahead(self.stage, host_network=self.order["host_network"])
        self._instances: dict[int, int] = {}
        awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.control.send(b'{"started": true}')
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(awake, select.POLLIN)
        is_undisturbed = False
        while True:
            pause = 0 if is_undisturbed else _UNDISTURBED
            events = poll.poll(pause if self._ahead.wants_more else None)
            is_undisturbed = not events
            if is_undisturbed:
                self._ahead.make()
            for descriptor, _ in events:
                if descriptor == awake:
                    os.read(awake, 4096)
                    self._report_ended()
                else:
                    self._obey()

    def _load(self) -> None:
        """Everything that an instance will use, so that it finds it loaded, and what the environment asks for."""
        if layer := self.order["layer"]:
            loader.add_layer(Path(layer))
        _fill_descriptors(_LISTENER + 1)
        before = _open_descriptors()
        warming.warm()
        # libuv keeps a pipe, and each fork gets one of its own in its place: with the same numbers, where none
        # below them is free. Without it the first program that an instance starts would be its end.
        self._pipe = sorted(_open_descriptors() - before)
        _fill_descriptors(max(self._pipe, default=0))
        _compile_ahead(self.order["source"])
        self._loaded = _load_ahead(self.order["source"])
        self._prepared = waiting.prepare(self._loaded) if self._loaded else None
        if self._loaded is None:
            sys.path.insert(0, self.order["source"])
        for name in self.order["preload"]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # or looking at it would copy every page
        gc.disable()

    def _obey(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self.control, MAX_MESSAGE, 1)
        except ConnectionResetError:  # it was killed, and had not read all that we said
            message = b""
        if not message:
            os._exit(0)  # the engine is gone; instances live on
        request = json.loads(message)
        number = request["fork"]
        view = _view(request)
        spare = self._ahead.take(view)
        try:
            system.unshare("pid")
            pid = self._fork()
        except OSError as error:
            self._fail(number, error)
            _close(descriptors[0], spare)
            return
        if pid == 0:
            try:
                instance = _Instance(
                    self.stage, self._filter, self.order, request, view, self._loaded, self._prepared, spare
                )
                instance.begin(descriptors[0], self._pipe)
            except BaseException:  # boundary: a fork must not go on as its parent
                traceback.print_exc()
            finally:
                os._exit(1)
        system.setns(self._own_pids, "pid")
        _close(descriptors[0], spare)
        self._instances[pid] = number
        handle = os.pidfd_open(pid)
        try:
            socket.send_fds(self.control, [b'{"forked": %d}' % number], [handle])
        except OSError as error:  # too many descriptors are on their way; the next one may get through
            os.kill(pid, signal.SIGKILL)
            self._fail(number, error)
        finally:
            os.close(handle)

    def _fail(self, number: int, error: OSError) -> None:
        self.control.send(json.dumps({"failed": number, "error": str(error)}).encode())

    def _fork(self) -> int:
        if self.order["preload"]:  # modules of others may want to know
            return os.fork()
        # Without Python's own preparations, which are about threads, and cost as much as the fork itself: here are
        # none. The one thing that matters is that no two instances draw the same numbers.
        pid: int = _fork_only()
        if pid < 0:
            raise OSError(ctypes.get_errno(), "fork failed")
        if pid == 0 and (module := sys.modules.get("random")):
            module.seed()
        return pid

    def _report_ended(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                number = self._instances.pop(pid, None)
                if number is not None:
                    self.control.send(b'{"ended": %d, "status": %d}' % (number, status))


@dataclass
class _Instance:
    """One instance, from the fork until the runtime takes over."""

    stage: mounts.Stage
    filter: bytes
    order: dict[str, Any]
    request: dict[str, Any]
    view: mounts.View
    loaded: loader.Loaded | None
    prepared: waiting.Prepared | None
    spare: Spare | None

    def begin(self, channel: int, kept: list[int]) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if self.spare:
            self.spare.enter()
        os.dup2(channel, _CHANNEL)  # over the zygote's own descriptors, of which none may stay
        for first, last in pairwise([_CHANNEL, *kept, 1024]):
            os.closerange(first + 1, last)
        speak = socket.socket(fileno=_CHANNEL)
        try:
            self._isolate(speak)
        except Exception as error:  # boundary: the engine is told, whatever it is
            speak.sendall(json.dumps({"ready": False, "error": f"cannot isolate it: {error}"}).encode() + b"\n")
            os._exit(1)
        if self.loaded is None:
            program.serve(self._told(speak)[0])
        wait = waiting.Waiting(
            self.loaded,
            self.prepared,
            self.request["keep_history"],
            is_told=lambda: _has_more(speak),
            tell=lambda: self._told(speak),
            announce=lambda tools: speak.sendall(mcp.dumps({"ready": True, "tools": tools}) + b"\n"),
        )
        program.run(wait.serve(), _CHANNEL)

    def _isolate(self, channel: socket.socket) -> None:
        """Everything that keeps it apart."""
        os.setsid()
        system.unshare("ipc", "uts")
        socket.sethostname(self.request["hostname"])
        if self.spare:
            mounts.change_root(self.stage, self.view)
        else:
            system.unshare("mount")
            if not self.order["host_network"]:
                system.unshare("network")
                namespaces.bring_up_loopback()
            mounts.set_up_root(self.stage, self.view)
        self._open_log(channel)
        if channel.recv(2) != b"go":
            os._exit(0)  # the engine has given up
        system.unshare("cgroup")
        confine(
            self.filter,
            open_files=self.request["open_files"],
            shares_network=self.order["host_network"],
        )
        os.dup2(0, _LISTENER)  # a place for it, which nothing else takes

    def _told(self, channel: socket.socket) -> tuple[program.Options, bool]:
        """Wait for the assignment: from now on it is somebody's instance. And whether it has time to rehearse."""
        length, descriptors, _, _ = socket.recv_fds(channel, 4, 1)
        if not length:
            os._exit(0)  # the engine is gone, or does not need it
        os.dup2(descriptors[0], _LISTENER)
        os.close(descriptors[0])
        assignment = _read(channel, struct.unpack("!I", length)[0])
        channel.detach()
        speaks = self.loaded is None or assignment["confirm"]  # what is said on it last is said by the runtime
        if not speaks:
            os.dup2(0, _CHANNEL, inheritable=False)
        settings.give(assignment["variables"])
        _keep_variables(assignment["variables"])
        os.chdir(assignment["folder"])
        sys.argv = [ENVIRONMENT, *assignment["arguments"]]
        if self.loaded is None:
            sys.path.remove(self.order["source"])
        options = program.Options(
            path=_ENVIRONMENT_PATH,
            fd=_LISTENER,
            ready_fd=_CHANNEL if speaks else None,
            no_history=not self.request["keep_history"],
            stops_on_signals=False,  # the first process of a pid namespace is not asked to end, but killed
            arguments=assignment["arguments"],
        )
        return options, assignment["rehearse"]

    def _open_log(self, channel: socket.socket) -> None:
        log = os.open(LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        listeners: dict[str, socket.socket] = {}
        if port := self.request["egress"]:
            listeners["egress"] = _listen_for_egress(port)
        if path := self.request["second"]:
            listeners["second"] = _listen_for_second(path)
        said = json.dumps({"isolated": [*listeners], "loaded": self.loaded is not None}).encode() + b"\n"
        socket.send_fds(channel, [said], [log, *(listener.fileno() for listener in listeners.values())])
        for listener in listeners.values():
            listener.close()
        os.close(log)
        os.close(null)


def _load_ahead(source: str) -> loader.Loaded | None:
    """The environment, where loading it does the same for every instance; else each loads it for itself."""
    if not purity.is_same_for_all(source):
        return None
    try:
        return loader.load(_ENVIRONMENT_PATH)
    except AEnvError:
        return None  # an instance will say it again, to whoever asked for it


def _compile_ahead(source: str) -> None:
    """Lay the compiled form of the environment's code under its folder, which cannot be written to."""
    for file in loader.python_files(source):
        folder, name = os.path.split(file.removeprefix(ENVIRONMENT))
        place = f"{_COMPILED}{folder}/__pycache__"
        os.makedirs(place, exist_ok=True)
        with contextlib.suppress(py_compile.PyCompileError, OSError):  # it will be told when it is loaded
            target = f"{place}/{name[:-3]}.{sys.implementation.cache_tag}.pyc"
            py_compile.compile(file, target, doraise=True, quiet=2)
    if os.path.isdir(_COMPILED):
        options = f"userxattr,lowerdir={_COMPILED}:{ENVIRONMENT}"
        system.mount("environment", ENVIRONMENT, "overlay", system.MS_NOSUID | system.MS_NODEV, options)


def _open_descriptors() -> set[int]:
    names = os.listdir("/proc/self/fd")  # that folder's own descriptor, too, which is closed by now
    return {number for number in map(int, names) if os.path.exists(f"/proc/self/fd/{number}")}


def _fill_descriptors(end: int) -> None:
    """Leave no number below `end` free."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) < end:
        pass
    os.close(descriptor)


def _view(request: dict[str, Any]) -> mounts.View:
    view = request["view"]
    folders = (WORKSPACE, "/tmp", "/var/log", "/run/shm")
    return mounts.View(view["storage_bytes"], view["inodes"], folders, original=view["original"])


def _close(channel: int, spare: Spare | None) -> None:
    os.close(channel)
    if spare:
        spare.close()


def _has_more(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def _read(channel: socket.socket, length: int) -> Any:
    data = bytearray()
    while len(data) < length:
        piece = channel.recv(length - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return json.loads(data)


def _keep_variables(variables: dict[str, str]) -> None:
    """For commands that are run beside the environment: /proc does not show what was set after a fork."""
    file = os.open(VARIABLES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, json.dumps(variables).encode())
    os.close(file)


def _listen_for_egress(port: int) -> socket.socket:
    """What programs inside take for a proxy; whoever gets the socket decides what becomes of it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def _listen_for_second(path: str) -> socket.socket:
    """Where this instance reaches its second part, which is given the socket, and so shares no folder with it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(1024)
    return listener


if __name__ == "__main__":
    main()
