"""An instance, from the fork until the runtime takes over.

It waits, as the first process of a pid namespace, until the stager sends it into its room; and there, confined and
with all done that can be done ahead, until the engine asks for an instance.

    engine → instance, on its channel: its assignment, with a listener
    instance → engine: that it is ready, as every runtime says it: when it serves, or, where its environment is
                       loaded ahead, when it is, and where asked for once more when it serves
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from ...base import settings
from ...isolation.sandbox import protocol, system
from ...isolation.sandbox.confine import confine
from ...isolation.sandbox.inside_paths import ENVIRONMENT, VARIABLES
from ...isolation.sandbox.protocol import Enter
from ..runtime import loader, program
from . import preloaded
from .forked_loop import ForkedLoop, renew_lock

CHANNEL = 3  # the descriptors of an instance, besides the three that every process has
LISTENER = 4
_MAX_DESCRIPTORS = 1 + len(system.ROOM_NAMESPACES)
_ENVIRONMENT_PATH = Path(ENVIRONMENT)  # here: what each instance makes anew costs it page faults
_NO_DESCRIPTOR = (1 << 31) - 1  # beyond the largest


@dataclass(frozen=True)
class ForkImage:
    """What the zygote has in memory for every instance."""

    loaded: loader.LoadedProject | None
    prepared: preloaded.PreparedApp | None
    filter: bytes
    source: str
    host_network: bool
    kept: tuple[int, ...]
    """Descriptors that stay open."""
    lock: tuple[int, int] | None
    """Those of them that each instance replaces by its own: see `forked_loop.lock_among`."""
    has_preloaded: bool
    """Whether there are modules of others, which may want to know of a fork."""
    rights: tuple[int, ...]
    """The capabilities of instances; none, but in sidecars."""


async def begin(image: ForkImage, line: int, loop: ForkedLoop | None) -> NoReturn:
    """Be the instance. With every capability over the second user namespace, and in no room yet.

    `loop` runs in the process that forked this one.
    """
    try:
        await _begin(image, line, loop)
    except BaseException:  # boundary: a fork must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(1)


async def _begin(image: ForkImage, line: int, loop: ForkedLoop | None) -> NoReturn:
    signal.set_wakeup_fd(-1)
    if image.lock:
        renew_lock(image.lock)
    if module := sys.modules.get("random"):
        module.seed()  # no two instances may draw the same numbers
    os.setsid()
    enter, kept = _enter_room(image, line)
    scoped = image.host_network  # by the zygote, before any code of the environment ran
    confine(
        image.filter,
        image.rights,
        open_files=enter.open_files,
        shares_network=scoped,
        is_scoped=scoped,
    )
    os.dup2(0, LISTENER)  # a place for it, which nothing else takes
    told = _Told(image, enter.keep_history, kept)
    if image.loaded is None or loop is None:
        asyncio._set_running_loop(None)  # that of the process which forked this one
    if image.loaded is None:
        told.join()
        program.serve(told.wait()[0])
    wait = preloaded.PreloadedInstance(
        image.loaded,
        image.prepared,
        enter.keep_history,
        has_news=told.has_news,
        join=told.join,
        tell=told.wait,
        announce=kept.sendall,
    )
    if loop is None:
        program.run(wait.serve(), CHANNEL)
    loop.renew()
    await program.run_here(wait.serve(), CHANNEL)


def _enter_room(image: ForkImage, line: int) -> tuple[Enter, socket.socket]:
    """Wait to be sent into a room, and enter it. What is left open is the line, and what every fork keeps."""
    # Of our own making, like the channel: Python would ask the kernel for its kind.
    stager = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, line)
    stager.send(protocol.WAITING)
    packet, descriptors, _, _ = socket.recv_fds(stager, protocol.MAX_BYTES, _MAX_DESCRIPTORS)
    if not packet:
        os._exit(0)  # it is not wanted
    log, *spaces = descriptors
    for kind, space in zip(system.ROOM_NAMESPACES, spaces, strict=False):
        system.setns(space, kind)
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2), (line, CHANNEL)):
        os.dup2(source, target)  # over the zygote's own descriptors, of which none may stay
    stager.detach()
    for first, last in pairwise([CHANNEL, *image.kept, _NO_DESCRIPTOR]):
        os.closerange(first + 1, last)
    return Enter.unpacked(packet), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, CHANNEL)


@dataclass(frozen=True)
class _Told:
    """How an instance learns what it is."""

    image: ForkImage
    keep_history: bool
    channel: socket.socket
    """To the stager; when it has joined, under the same number, to the engine."""

    def join(self) -> bool:
        """Wait until the engine asks for an instance, and has put this process into its control groups.

        Whether nobody waits for that instance yet.
        """
        packet, descriptors, _, _ = socket.recv_fds(self.channel, 1, 1)
        if not packet:
            os._exit(0)  # it is not wanted
        os.dup2(descriptors[0], CHANNEL)
        os.close(descriptors[0])
        if (said := self.channel.recv(2)) not in (protocol.GO, protocol.BE_SPARE):
            os._exit(0)
        return said == protocol.BE_SPARE

    def has_news(self) -> bool:
        poll = select.poll()
        poll.register(CHANNEL, select.POLLIN)
        return bool(poll.poll(0))

    def wait(self) -> tuple[program.RuntimeOptions, bool]:
        """Wait for the assignment: from now on it has an owner. And whether it has time to rehearse."""
        channel = self.channel
        length, descriptors, _, _ = socket.recv_fds(channel, 4, 1)
        if not length:
            os._exit(0)  # the engine is gone, or does not need it
        os.dup2(descriptors[0], LISTENER)
        os.close(descriptors[0])
        assignment, variables = _assignment(channel, struct.unpack("!I", length)[0])
        channel.detach()
        # What is said on the channel last is said by the runtime.
        speaks = self.image.loaded is None or assignment.confirm
        if not speaks:
            os.dup2(0, CHANNEL, inheritable=False)
        settings.give(assignment.variables)
        _keep_variables(variables)
        os.chdir(assignment.folder)
        sys.argv = [ENVIRONMENT, *assignment.arguments]
        if self.image.loaded is None:
            sys.path.remove(self.image.source)
        options = program.RuntimeOptions(
            path=_ENVIRONMENT_PATH,
            fd=LISTENER,
            ready_fd=CHANNEL if speaks else None,
            no_history=not self.keep_history,
            stops_on_signals=False,  # an instance is not asked to end, but killed
            arguments=[*assignment.arguments],
            # Where code of the environment comes first, it may change them.
            variables=assignment.variables if self.image.loaded else None,
        )
        return options, assignment.rehearse


def open_descriptors() -> set[int]:
    """The numbers of those that are open now."""
    names = os.listdir("/proc/self/fd")  # that folder's own descriptor, too, which is closed by now
    return {number for number in map(int, names) if os.path.exists(f"/proc/self/fd/{number}")}


def fill_descriptors(end: int) -> None:
    """Leave no number below `end` free."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) < end:
        pass
    os.close(descriptor)


def _assignment(channel: socket.socket, length: int) -> tuple[protocol.Assignment, bytes]:
    data = bytearray()
    while len(data) < length:
        piece = channel.recv(length - len(data))
        if not piece:
            os._exit(0)
        data += piece
    return protocol.Assignment.believed(bytes(data))


def _keep_variables(variables: bytes) -> None:
    """For commands that are run beside the environment: /proc does not show what was set after a fork."""
    file = os.open(VARIABLES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, variables)
    os.close(file)
