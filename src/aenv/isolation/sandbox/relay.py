"""A relay: connections to a unix socket, passed on to a port in the network where another process is.

    python -m aenv.isolation.sandbox.relay LISTENER PROCESS PORT IDLE

LISTENER and PROCESS (a pidfd) are descriptors. It ends with that process, or when it had no connection for IDLE
seconds. What passes is bytes to it. Should one of the two sides get the better of it all the same, it finds a
process that has no file, no capability, no other descriptor, and reaches nothing but that one network.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from errno import EINPROGRESS
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, epoll
from time import monotonic

from . import namespaces, seccomp, system
from .confine import confine

CONNECTIONS = 64  # at a time; more wait in the listener's queue
_CHUNK = 64 << 10
_LAST_WORDS = 1.0  # seconds in which is passed on what the process had said when it ended
_TRIES = 2  # SYNs after the first, of a server that takes no connections: 7 seconds
_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def main() -> None:
    listener, process, port = map(int, sys.argv[1:4])
    program = seccomp.compiled()
    namespaces.enter(process, "network")  # as id 0 of its user namespace
    _shut_in(program)
    Relay(socket.socket(fileno=listener), process, port, float(sys.argv[4])).run()


def _shut_in(program: bytes) -> None:
    system.drop_bounding_capabilities()
    # An empty root: landlock does not prevent connecting to the sockets that lie in folders of the host.
    system.unshare("mount")
    system.mount("empty", "/tmp", "tmpfs", system.MS_RDONLY, "size=4k,nr_inodes=2")
    os.chroot("/tmp")
    os.chdir("/")
    system.prctl(system.PR_SET_DUMPABLE, 0)  # to code inside it looks like one of its own
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    # "Shares": the host's processes are in its reach as its network would be, and this keeps signals in too.
    confine(program, open_files=2 * CONNECTIONS + 16, shares_network=True)


class _End:
    other: _End

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.is_connected = True
        self.unsent = memoryview(b"")  # what the other has said, and this one did not take yet
        self.has_ended = False  # it will say no more
        self.was_told = False  # that the other will say no more
        self.is_gone = False  # it does not listen any more either
        self.watched = -1

    def wanted(self) -> int:
        if not self.is_connected:
            return EPOLLOUT
        # Nothing is read from a side while the other does not take what it said before.
        return (EPOLLOUT if self.unsent else 0) | (EPOLLIN if self.can_say() else 0)

    def can_say(self) -> bool:
        return not self.has_ended and not self.other.unsent

    def send(self) -> None:
        if not self.is_connected:
            return
        if self.unsent:
            self.unsent = self.unsent[self.socket.send(self.unsent) :]
        if not self.unsent and self.other.has_ended and not self.was_told:
            self.was_told = True
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> None:
        data = self.socket.recv(_CHUNK)
        self.has_ended = not data
        self.other.unsent = memoryview(data)

    def is_delivered(self) -> bool:
        """All that it said has reached the other."""
        return self.has_ended and self.other.was_told


class Relay:
    """Passes on what comes to `listener`, until there is no reason to wait for more."""

    def __init__(self, listener: socket.socket, process: int, port: int, idle: float) -> None:
        self._listener = listener
        self._process = process
        self._port = port
        self._idle = idle
        self._ends: dict[int, _End] = {}
        self._dropped: list[socket.socket] = []
        self._is_ending = False
        self._is_full = False
        self._deadline = monotonic() + idle
        self._poll = epoll()
        listener.setblocking(False)
        self._poll.register(listener.fileno(), EPOLLIN)
        self._poll.register(process, EPOLLIN)

    def run(self) -> None:
        while not self._is_over():
            waits_for_good = self._ends and not self._is_ending
            events = dict(self._poll.poll(-1 if waits_for_good else max(0.0, self._deadline - monotonic())))
            for descriptor, happened in events.items():
                if end := self._ends.get(descriptor):
                    self._go_on(end, happened)
            # Only now: a new socket must not get the number of one whose events are still to come.
            self._close_dropped()
            if self._process in events:
                self._begin_to_end()
            elif self._listener.fileno() in events:
                self._accept()
                self._close_dropped()

    def _is_over(self) -> bool:
        if self._is_ending and not self._ends:
            return True
        return (self._is_ending or not self._ends) and monotonic() >= self._deadline

    def _begin_to_end(self) -> None:
        self._is_ending = True
        self._deadline = monotonic() + _LAST_WORDS
        self._poll.unregister(self._process)
        self._poll.unregister(self._listener.fileno())  # closing is not enough: others hold it too
        self._listener.close()

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        client = _End(sock)
        self._ends[sock.fileno()] = client
        client.other = server = _End(sock)
        server.other = client
        self._dial(server, 0)
        if len(self._ends) >= 2 * CONNECTIONS:
            self._is_full = True
            self._poll.modify(self._listener.fileno(), 0)

    def _dial(self, server: _End, which: int) -> None:
        """Connect to one of the addresses, or to those after it, or give up."""
        for family, address in _ADDRESSES[which:]:
            server.socket = sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _TRIES)
            error = sock.connect_ex((address, self._port))
            if error in (0, EINPROGRESS):
                server.is_connected = not error
                server.watched = -1
                self._ends[sock.fileno()] = server
                self._watch(server)
                self._watch(server.other)
                return
            self._dropped.append(sock)
        self._drop(server)

    def _go_on(self, end: _End, happened: int) -> None:
        try:
            if not end.is_connected:
                if end.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self._dial_next(end)
                    return
                end.is_connected = True
            if happened & EPOLLOUT:
                end.send()
            if happened & (EPOLLIN | EPOLLHUP | EPOLLERR) and end.can_say():
                end.receive()
                end.other.send()
            end.is_gone |= bool(happened & (EPOLLHUP | EPOLLERR))
        except BlockingIOError:
            pass
        except OSError:  # one of them broke off
            self._drop(end)
            return
        both = end.is_delivered() and end.other.is_delivered()
        if both or (end.is_gone and end.is_delivered()):
            self._drop(end)
        else:
            self._watch(end)
            self._watch(end.other)

    def _dial_next(self, server: _End) -> None:
        del self._ends[server.socket.fileno()]
        self._poll.unregister(server.socket.fileno())
        self._dropped.append(server.socket)
        families = [family for family, _ in _ADDRESSES]
        self._dial(server, families.index(server.socket.family) + 1)

    def _watch(self, end: _End) -> None:
        wanted = end.wanted()
        if not wanted and end.is_gone:
            wanted = -1  # the kernel tells that it is gone again and again, whatever is asked for
        if wanted == end.watched:
            return
        descriptor = end.socket.fileno()
        if wanted == -1:
            self._poll.unregister(descriptor)
        elif end.watched == -1:
            self._poll.register(descriptor, wanted)
        else:
            self._poll.modify(descriptor, wanted)
        end.watched = wanted

    def _drop(self, end: _End) -> None:
        """Close a connection, with both its ends."""
        for one in (end, end.other):
            descriptor = one.socket.fileno()
            if self._ends.pop(descriptor, None):
                if one.watched != -1:
                    self._poll.unregister(descriptor)
                self._dropped.append(one.socket)
        if not self._is_ending:
            self._deadline = monotonic() + self._idle

    def _close_dropped(self) -> None:
        for sock in self._dropped:
            sock.close()
        self._dropped.clear()
        if self._is_full and not self._is_ending and len(self._ends) < 2 * CONNECTIONS:
            self._is_full = False
            self._poll.modify(self._listener.fileno(), EPOLLIN)


if __name__ == "__main__":
    main()
