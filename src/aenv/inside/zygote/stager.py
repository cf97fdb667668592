"""The stager: starts the zygote of an environment, builds the namespaces of its instances, and tells the engine.

`isolation/sandbox/launcher.py` starts it as the first process of a pid namespace, on a stage that holds what
instances will see. It runs our code alone, and is the only process here that the engine believes. Three user
namespaces matter:

    the host's         the engine
    the first          what the zygote sees was made there, and nothing that runs later has rights over it
    the second         the stager, the zygote, all instances; mounts are locked, being copied from the first

The zygote loads the author's code, and forks processes which wait, each the first of a pid namespace of its own.
For each of them the stager builds a room. The process enters it at once, and waits there, confined, until the
engine asks for an instance. Nothing else is allowed to a zygote.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ...isolation.sandbox import mounts, protocol, system
from ...isolation.sandbox.inside_paths import ENVIRONMENT
from ...isolation.sandbox.orders import Stage, StageTask, ZygoteOrder, task_from
from ...isolation.sandbox.protocol import NamespaceShape
from . import ending, rooms, started_zygote
from .rooms import Room
from .senders import SO_PASSCRED, facts, is_readable, received
from .started_zygote import StartedZygote

_SPARES = 4
_UNDISTURBED = 20  # milliseconds: longer than a start takes
_CROWD = 64


def main() -> NoReturn:
    """Start the zygote, and do what the engine asks for until it is gone; then wait for the last instance."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    task, order = task_from(int(sys.argv[2]), ZygoteOrder)
    stager = _Stager(control, task.stage, host_network=order.host_network)
    try:
        stager.begin(task, builds_apart=order.builds_apart)
        while stager.is_wanted:
            stager.go_on()
    except Exception as error:  # boundary: the engine is told, whatever it is; instances that live go on
        stager.give_up(f"the stager failed: {error!r}")
    stager.wait_for_all()
    os._exit(0)


@dataclass(eq=False)
class _Spare:
    """A process that waits to become an instance, and its room; both are made at the same time."""

    number: int
    shape: NamespaceShape
    line: socket.socket
    pid: int = 0
    handle: int = -1
    building: socket.socket | None = None
    room: Room | None = None
    wanted: protocol.ForkRequest | None = None
    channel: int = -1

    @property
    def is_ready(self) -> bool:
        return self.room is not None

    def close(self) -> None:
        """End it, unless it has become an instance."""
        if self.handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        self.let_go()

    def let_go(self) -> None:
        """Close what we hold of it. A process that still waits reads that, and ends."""
        self.line.close()
        if self.building:
            self.building.close()
        if self.room:
            self.room.close()
        for descriptor in (self.handle, self.channel):
            if descriptor >= 0:
                os.close(descriptor)


class _Stager:
    """The state of the one stager of this process."""

    def __init__(self, control: socket.socket, stage: Stage, *, host_network: bool) -> None:
        self.is_wanted = True
        self._control = control
        self._stage = stage
        self._host_network = host_network
        self._builder: rooms.RoomBuilder
        self._poll = select.poll()  # not epoll: code with our user id, the author's, could hold all its watches
        self._hear: dict[int, Callable[[], None]] = {}
        """What to do when a descriptor can be read."""
        self._shape: NamespaceShape | None = None
        self._spares: deque[_Spare] = deque()
        """For an instance like the last one."""
        self._can_build = True
        self._number = 0
        self._made: dict[int, _Spare] = {}
        """Those that are not instances yet, by their number here."""
        self._instances: dict[int, int] = {}
        """The engine's numbers of instances, by ours."""
        self._untold: set[int] = set()
        """Our numbers of all that were asked for and whose end was not told, which can be told once."""
        self._leaders: dict[int, tuple[int, int]] = {}
        """The first processes of instances, by the engine's numbers, with pidfds; also of some that have ended."""
        self._kept: set[int] = set()
        """The engine's numbers of those that it has written down."""
        self._crowd = _CROWD
        """With so many leaders, those that have ended are let go."""
        self._zygote: StartedZygote

    # Beginning

    def begin(self, task: StageTask, *, builds_apart: bool) -> None:
        """Start the zygote in the first user namespace, and enter the second."""
        system.unshare("mount")
        is_alone = rooms.mount_own_proc() and not builds_apart
        self._zygote = started_zygote.start(task, self._control)
        handle = os.pidfd_open(self._zygote.pid)
        system.unshare("user", "mount")
        with socket.socket(fileno=task.nested) as above:
            above.send(b"+")
            if above.recv(1) != b"+":
                raise OSError("the ids of the second user namespace were not mapped")
        self._builder = rooms.RoomBuilder(self._stage, host_network=self._host_network, is_alone=is_alone)
        second = os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        socket.send_fds(self._zygote.socket, [b"namespace"], [second])
        os.close(second)
        # The zygote has the same id as this process, and enters the same namespace. What keeps it out: this
        # program was started in the first one, and is secret to all without rights there.
        system.prctl(system.PR_SET_DUMPABLE, 0)
        awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Without a warning: for that Python takes a lock, in the signal's handler, and waits for itself.
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._listen(awake, lambda: self._collect(awake))
        self._listen(self._control.fileno(), self._hear_engine)
        self._listen(self._zygote.socket.fileno(), self._hear_zygote)
        self._tell(protocol.Launched(task.owner), handle)
        os.close(handle)

    def _listen(self, descriptor: int, then: Callable[[], None]) -> None:
        self._hear[descriptor] = then
        self._poll.register(descriptor, select.POLLIN)

    def _ignore(self, descriptor: int) -> None:
        if self._hear.pop(descriptor, None):
            self._poll.unregister(descriptor)

    # Going on

    def go_on(self) -> None:
        """Wait for something to do, and do it; with nothing to do, make what the next instances will need."""
        wants_more = "Waiting" in self._zygote.said and self._shape is not None and self._can_build
        missing = _SPARES - len(self._spares) if wants_more else 0
        events = self._poll.poll(_UNDISTURBED if missing > 0 else None)
        for _ in range(missing if not events else 0):
            assert self._shape
            self._spares.append(self._make(self._shape))
        for descriptor, _ in events:
            if then := self._hear.get(descriptor):
                then()

    def _tell(self, message: object, *descriptors: int) -> bool:
        """Tell the engine; whether that was possible."""
        try:
            socket.send_fds(self._control, [protocol.encode(message)], descriptors)
        except OSError as error:  # it is gone, which will be read; or too many descriptors are on their way
            print(f"the engine could not be told: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def _hear_engine(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._control, protocol.MAX_BYTES, 1)
        except ConnectionResetError:
            # It was killed, and had not read all that we said. That is told first, and once: what it had said
            # itself comes next, and may be that an instance is written down.
            return
        if not packet:
            self.is_wanted = False
            return
        match protocol.decode(packet, protocol.Go, protocol.ForkRequest, protocol.Keep):
            case protocol.Go():
                with contextlib.suppress(OSError):  # it has ended, which will be noticed
                    self._zygote.socket.send(b"go")
            case protocol.Keep(number):
                if number in self._leaders:
                    self._kept.add(number)
            case protocol.ForkRequest() as fork:
                self._make_instance(fork, descriptors[0])

    # Processes that wait, and their rooms

    def _make_instance(self, fork: protocol.ForkRequest, channel: int) -> None:
        """Of a process that waits, else of a new one. Those that have ended while they waited are passed over."""
        while True:
            spare = self._spare_for(fork.shape)
            spare.wanted, spare.channel = fork, channel
            if not spare.is_ready or self._let_in(spare):
                return
            spare.channel = -1  # for the next one
            self._drop(spare)

    def _spare_for(self, shape: NamespaceShape) -> _Spare:
        if shape != self._shape:
            while self._spares:
                self._drop(self._spares.popleft())
            self._shape = shape
        self._can_build = True
        return self._spares.popleft() if self._spares else self._make(shape)

    def _make(self, shape: NamespaceShape) -> _Spare:
        self._number += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, SO_PASSCRED, 1)
        spare = self._made[self._number] = _Spare(self._number, shape, ours)
        self._untold.add(spare.number)
        self._listen(ours.fileno(), lambda: self._hear_spare(spare))
        with theirs:
            try:
                make = protocol.Make(spare.number).packed()
                socket.send_fds(self._zygote.socket, [make], [theirs.fileno()])
            except OSError as error:
                print(
                    f"the zygote could not be told: {error}", file=sys.stderr, flush=True
                )  # its end will be read
        return spare

    def _hear_spare(self, spare: _Spare) -> None:
        """The process is there: the kernel says which it is, whose child, and that it leads a pid namespace."""
        try:
            packet, sender = received(spare.line)
            if not packet:
                # A fork that failed is told before its line is closed, and the two sockets are read in any order.
                while self._zygote.status is None and is_readable(self._zygote.socket):
                    self._hear_zygote()
                if spare.number in self._made:
                    self._fail(spare, "it ended before it was an instance")
                return
            if packet != protocol.WAITING:
                raise protocol.Broken("not Waiting")
            if spare.pid:
                raise protocol.Broken("Waiting a second time")
            spare.handle = os.pidfd_open(sender)
            # Asked when it is open: the number cannot mean another process any more.
            if facts(sender) != (self._zygote.forker, [sender, 1]):
                raise protocol.Broken("a process that is not the first of a pid namespace, forked by the zygote")
        except (OSError, protocol.Broken) as error:
            self._fail(spare, f"what the environment has loaded broke the protocol: {error}")
            return
        spare.pid = sender
        self._build(spare)

    def _build(self, spare: _Spare) -> None:
        try:
            processes = os.open(f"/proc/{spare.pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if self._builder.is_alone:
                    spare.room = self._builder.build(spare.shape, processes)
                else:
                    spare.building = self._builder.begin(spare.shape, processes)
            finally:
                os.close(processes)
        except OSError as error:
            self._fail(spare, f"cannot isolate it: {error}", error.errno or 0)
            return
        if spare.building:
            self._listen(spare.building.fileno(), lambda: self._hear_builder(spare))
        else:
            self._send_in(spare)

    def _hear_builder(self, spare: _Spare) -> None:
        assert spare.building
        self._ignore(spare.building.fileno())
        try:
            spare.room = rooms.receive(spare.building)
        except rooms.NotBuilt as error:
            self._fail(spare, f"cannot isolate it: {error}")
            return
        self._send_in(spare)

    def _send_in(self, spare: _Spare) -> None:
        """Let the process enter its room, and confine itself: an instance that is asked for need not wait."""
        room, shape = spare.room, spare.shape
        assert room
        enter = protocol.Enter(shape.open_files, shape.keep_history).packed()
        try:
            socket.send_fds(spare.line, [enter], [room.log, *room.spaces])
        except OSError as error:
            self._fail(spare, f"it ended before it was an instance: {error}")
            return
        if spare.wanted and not self._let_in(spare):
            self._fail(spare, "it ended before it was an instance")

    def _let_in(self, spare: _Spare) -> bool:
        """Let the process be the instance that the engine has asked for. False when it has ended."""
        fork, room = spare.wanted, spare.room
        assert fork
        assert room
        try:
            socket.send_fds(spare.line, [protocol.JOIN], [spare.channel])
        except ConnectionError:
            return False
        except OSError as error:
            self._fail(spare, f"it could not be told that it is an instance: {error}")
            return True
        handed = (spare.handle, room.log, *room.listeners.values())
        if not self._tell(protocol.Prepared(fork.number, tuple(room.listeners)), *handed):
            self._fail(spare, "too many descriptors are on their way to the gateway")
            return True
        self._instances[spare.number] = fork.number
        self._forget(spare)
        self._remember(spare)
        spare.let_go()
        return True

    def _remember(self, spare: _Spare) -> None:
        """It is an instance, and lives on when this process is not needed any more."""
        assert spare.wanted
        if len(self._leaders) >= self._crowd:
            self._let_ended_go()
            self._crowd = 2 * len(self._leaders) + _CROWD
        self._leaders[spare.wanted.number] = spare.pid, spare.handle
        spare.handle = -1

    def _let_ended_go(self) -> None:
        """Forget the instances that have ended: other processes may get the numbers of theirs.

        Now and then, and before the numbers count. To wait for each end would mean to look at all of them again
        whenever anything happens.
        """
        look = select.poll()
        numbers = {handle: number for number, (_, handle) in self._leaders.items()}
        for handle in numbers:
            look.register(handle, select.POLLIN)
        for handle, _ in look.poll(0):
            os.close(handle)
            del self._leaders[numbers[handle]]
            self._kept.discard(numbers[handle])

    def _fail(self, spare: _Spare, error: str, code: int = 0) -> None:
        self._can_build = False  # until the next instance, which will be told what is wrong
        if spare.wanted:
            self._tell(protocol.NotForked(spare.wanted.number, error, code))
        if spare in self._spares:
            self._spares.remove(spare)
        self._drop(spare)

    def _drop(self, spare: _Spare) -> None:
        self._forget(spare)
        spare.close()

    def _forget(self, spare: _Spare) -> None:
        self._made.pop(spare.number, None)
        self._ignore(spare.line.fileno())
        if spare.building:
            self._ignore(spare.building.fileno())

    # The zygote, whose words may be the author's

    def _hear_zygote(self) -> None:
        try:
            packet, sender = received(self._zygote.socket)
            if packet:
                self._obey(packet, sender)
            else:
                self.give_up(f"what loads the environment ended {self._zygote.end()}")
        except (OSError, protocol.Broken) as error:
            self.give_up(f"what has loaded the environment broke the protocol: {error}")

    def _obey(self, packet: bytes, sender: int) -> None:
        zygote = self._zygote
        kinds = (protocol.Loaded, protocol.NotLoaded, protocol.Waiting, protocol.NotForked, protocol.Ended)
        match protocol.decode(packet, *kinds):
            case protocol.Loaded(is_loaded) if sender == zygote.pid:
                zygote.once("Loaded")
                self._show_compiled()
                self._tell(protocol.Started(is_loaded))
            case protocol.NotLoaded(error) if sender == zygote.pid:
                zygote.once("Loaded")
                self.give_up(error)
            case protocol.Waiting() if facts(sender)[0] == zygote.pid:
                zygote.once("Waiting")
                zygote.forker = sender
            case protocol.NotForked(number, error, code) if sender == zygote.forker and number in self._untold:
                self._untold.remove(number)
                if number in self._made:  # it may not be wanted any more
                    self._fail(self._made[number], error, code)
            case protocol.Ended(number, status) if sender == zygote.forker and number in self._untold:
                self._untold.remove(number)
                if (known := self._instances.pop(number, None)) is not None:
                    self._tell(protocol.Ended(known, status & 0xFFFF))  # as much as wait(2) tells
            case other:
                raise protocol.Broken(f"{type(other).__name__} of the wrong process, or at the wrong time")

    def _show_compiled(self) -> None:
        """Show the compiled form of the environment's code beside its source, where it cannot be written to."""
        if os.path.isdir(mounts.COMPILED):
            options = f"userxattr,lowerdir={mounts.COMPILED}:{ENVIRONMENT}"
            system.mount("environment", ENVIRONMENT, "overlay", system.MS_NOSUID | system.MS_NODEV, options)

    # Ending

    def _collect(self, awake: int) -> None:
        """The children that have ended: builders of rooms, what has lost its parent, and the zygote."""
        os.read(awake, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._zygote.pid:  # without it, what it has forked can still fork; the socket tells
                    self._zygote.status = ended[1]

    def give_up(self, reason: str) -> None:
        """No instance can be forked any more: tell the engine why."""
        if self.is_wanted:
            printed = self._zygote.tail() if hasattr(self, "_zygote") else ""
            self._tell(protocol.NotStarted(f"{reason}; it printed last:\n{printed}" if printed else reason))
            self.is_wanted = False

    def wait_for_all(self) -> None:
        """End what is not an instance, and return when the last instance has ended."""
        self._control.close()
        if hasattr(self, "_zygote"):
            self._zygote.socket.close()
        for spare in self._made.values():
            spare.close()
        self._let_ended_go()
        ending.end_others({self._leaders[number][0] for number in self._kept})
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


if __name__ == "__main__":
    main()
