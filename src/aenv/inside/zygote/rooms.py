"""Rooms: the namespaces of an instance, but for its pid namespace, built by the stager before it enters them.

So what an instance finds was made by code of ours alone: its root, its network, its log, and what listens for it.
Where the kernel can mount the /proc of another pid namespace (Linux 6.18) the stager builds a room itself, and
goes home; elsewhere a process does it from within that pid namespace, hands the room over, and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import dataclass

from ...isolation.sandbox import mounts, namespaces, system
from ...isolation.sandbox.inside_paths import LOG, WORKSPACE
from ...isolation.sandbox.orders import Stage
from ...isolation.sandbox.protocol import MAX_ERROR, NamespaceShape

FOLDERS = (WORKSPACE, "/tmp", "/var/log", "/run/shm")
_FILES = {"mount": "mnt", "ipc": "ipc", "uts": "uts", "network": "net"}
_MAX_HANDED = len(system.ROOM_NAMESPACES) + 3
_BUILT = "built"
_OWN = "/proc/self/ns"
_PROC = system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC


class NotBuilt(Exception):
    """Why there is no room, in the words of the process that tried."""


@dataclass(frozen=True)
class Room:
    """Descriptors of one room; for the holder to close."""

    log: int
    spaces: tuple[int, ...]
    """In the order of `system.ROOM_NAMESPACES`."""
    listeners: dict[str, int]

    def close(self) -> None:
        for descriptor in (self.log, *self.spaces, *self.listeners.values()):
            os.close(descriptor)


class RoomBuilder:
    """Builds rooms on a stage. Made once, in a process that has capabilities over its own namespaces."""

    def __init__(self, stage: Stage, *, host_network: bool, is_alone: bool) -> None:
        self._stage = stage
        kinds = system.ROOM_NAMESPACES
        self._kinds = kinds[:-1] if host_network else kinds
        system.unshare(*self._kinds)
        self._own = os.open(_OWN, os.O_RDONLY)  # which a room does not show, if it has the /proc of others
        self._home = self._opened()
        self.is_alone = is_alone
        """Whether it needs no other process."""

    def build(self, shape: NamespaceShape, processes: int) -> Room:
        """A room for the pid namespace `processes`. OSError when that fails."""
        try:
            return self._build(shape, f"/proc/self/fd/{processes}")
        finally:
            for kind, space in zip(self._kinds, self._home, strict=True):
                system.setns(space, kind)

    def begin(self, shape: NamespaceShape, processes: int) -> socket.socket:
        """The same by a process of its own. It comes on the socket: `receive`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Twice: only a child is in the pid namespace, and a process cannot go back to the one that it has left.
        if os.fork() == 0:
            try:
                ours.close()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                system.setns(processes, "pid")
                if os.fork() == 0:
                    room = self._build(shape)
                    said = " ".join([_BUILT, *room.listeners]).encode()
                    socket.send_fds(theirs, [said], [room.log, *room.spaces, *room.listeners.values()])
            except BaseException as error:  # boundary: a fork must not go on as its parent
                with contextlib.suppress(OSError):
                    theirs.send(str(error).encode()[:MAX_ERROR])
            finally:
                os._exit(0)
        theirs.close()
        return ours

    def _build(self, shape: NamespaceShape, processes: str = "") -> Room:
        system.unshare(*self._kinds)
        socket.sethostname("instance")
        if "network" in self._kinds:
            namespaces.bring_up_loopback()
        view = mounts.InstanceView(shape.storage_bytes, shape.inodes, FOLDERS, original=shape.original)
        mounts.set_up_root(self._stage, view, processes)
        listeners: dict[str, socket.socket] = {}
        if shape.egress_port:
            listeners["egress"] = _listen_for_egress(shape.egress_port)
        if shape.sidecar_socket:
            listeners["sidecar"] = _listen_for_sidecar(shape.sidecar_socket)
        log = _open_log()
        if not processes:
            self._own = os.open(_OWN, os.O_RDONLY)
        return Room(log, self._opened(), {name: listener.detach() for name, listener in listeners.items()})

    def _opened(self) -> tuple[int, ...]:
        return tuple(os.open(_FILES[kind], os.O_RDONLY, dir_fd=self._own) for kind in self._kinds)


def receive(line: socket.socket) -> Room:
    """The room. NotBuilt when there is none."""
    text, descriptors, _, _ = socket.recv_fds(line, MAX_ERROR, _MAX_HANDED)
    first, *names = text.decode(errors="replace").split(" ")
    if first != _BUILT:
        raise NotBuilt(text.decode(errors="replace") or "the process that builds it ended")
    spaces = len(descriptors) - 1 - len(names)
    return Room(
        descriptors[0],
        tuple(descriptors[1 : 1 + spaces]),
        dict(zip(names, descriptors[1 + spaces :], strict=True)),
    )


def mount_own_proc() -> bool:
    """Cover the /proc of the stage with that of this pid namespace; whether the kernel could do it for others."""
    try:
        system.mount("proc", "/proc", "proc", _PROC, "pidns=/proc/self/ns/pid")
    except OSError:
        system.mount("proc", "/proc", "proc", _PROC)
        return False
    return True


def _open_log() -> int:
    """A new file, whatever an image has in its place: a link could lead to a file of this process in /proc."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(LOG)
    return os.open(LOG, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND, 0o644)


def _listen_for_egress(port: int) -> socket.socket:
    """What programs inside take for a proxy. No process of the instance ever holds it."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _listen_for_sidecar(path: str) -> socket.socket:
    """Where this instance reaches its sidecar, which is given the socket, and so shares no folder with it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(1024)
    return listener
