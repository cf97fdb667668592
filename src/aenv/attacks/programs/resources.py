"""Attacks on what all share: processes, memory, disk, and the kernel's pools of small things."""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable

from attempt import Contained, Given, T, attack, attacks, libc, main, own, touch

_PIECE = b"\1" * (1 << 20)


@attack
def fork_bomb(given: Given) -> str:
    """As many processes as wanted, all alive at the same time."""

    def begin(_: int) -> int:
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        return child

    def end(child: int) -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    return _as_many("processes", given["processes"], begin, end)


@attack
def memory_bomb(given: Given) -> str:
    held = [bytes(_PIECE) + b"\2" for _ in range(given["mebibytes"])]
    return f"{len(held)} MiB of memory"


@attack
def disk_fill(given: Given) -> str:
    place = own(given, "large")
    written = 0
    try:
        with open(place, "wb", buffering=0) as file:
            while written < given["mebibytes"]:
                if file.write(_PIECE) < len(_PIECE):
                    raise Contained(f"{written} MiB, then a short write")
                written += 1
    except OSError as error:
        raise Contained(f"{written} MiB, then: {error}") from None
    finally:
        os.unlink(place)
    return f"{written} MiB on disk"


attacks({"disk_fill_in_shared_memory": ("{}", lambda given: disk_fill({**given, "own_folder": "/dev/shm"}))})


@attack
def inode_fill(given: Given) -> str:
    folder = own(given, "many")
    os.mkdir(folder)

    def make(number: int) -> str:
        touch(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY)
        return f"{folder}/{number}"

    try:
        return _as_many("files", given["files"], make, os.unlink)
    finally:
        os.rmdir(folder)


@attack
def take_all_terminals(given: Given) -> str:
    terminal = ("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    return _as_many("terminals", given["terminals"], lambda _: os.open(*terminal), os.close)


@attack
def open_files_without_end(given: Given) -> str:
    """Limits are per process: one more than the limit in this one."""
    return _as_many("open files", given["open_files"], lambda _: os.open("/dev/null", os.O_RDONLY), os.close)


def _as_many(what: str, most: int, take: Callable[[int], T], give_back: Callable[[T], object]) -> str:
    """Have so many at the same time, and give them back."""
    held: list[T] = []
    try:
        while len(held) < most:
            held.append(take(len(held)))
    except OSError as error:
        raise Contained(f"{len(held)} {what}, then: {error}") from None
    finally:
        for one in held:
            give_back(one)
    return f"{len(held)} {what}"


# What is held for as long as the process lives: whether others get some is for them to say.


def hold_watches(most: int) -> list[int]:
    """Inotify instances, which are counted by user."""
    held: list[int] = []
    while len(held) < most and (descriptor := libc.inotify_init()) >= 0:
        held.append(descriptor)
    return held


def hold_descriptors_in_flight(most: int) -> list[socket.socket]:
    """Sent over a socket that no process reads; counted by user too."""
    held: list[socket.socket] = []
    sent = 0
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 253))]
    with contextlib.suppress(OSError):
        while sent < most:
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            one.setblocking(False)
            held += [one, other]
            with contextlib.suppress(BlockingIOError):
                while sent < most:
                    one.sendmsg([b"x"], rights)
                    sent += 253
    return held


def spin(processes: int) -> None:
    """Burn CPU in so many processes until they are killed; returns at once."""
    for _ in range(processes):
        if os.fork() == 0:
            while True:
                pass


def burn(seconds: float) -> float:
    """Burn that much CPU time in this process; returns how much it was."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return seconds


if __name__ == "__main__":
    main()
