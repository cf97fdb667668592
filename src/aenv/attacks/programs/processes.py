"""Attacks on processes: to see, signal, trace, read and outlive those of others."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from attempt import Contained, Given, attack, attacks, call, first, main, touch

_ATTACH = 16


@attack
def see_host_processes(given: Given) -> str:
    for number in _numbers():
        if int(number) in (os.getpid(), os.getppid()):
            continue  # its name is among our own arguments
        try:
            with open(f"/proc/{number}/cmdline") as file:
                if given["victim_name"] in file.read():
                    return f"sees the victim as process {number}"
        except OSError:
            continue
    raise Contained("the victim is not in /proc")


@attack
def signal_host_process(given: Given) -> str:
    os.kill(given["victim"], signal.SIGCONT)
    with open(f"/proc/{given['victim']}/cmdline") as file:
        if given["victim_name"] not in file.read():
            raise Contained("it was another process with that number")
    return "signalled the victim"


@attack
def stop_host_process_by_number(given: Given) -> str:
    """The whole range of numbers around the victim's, with the signal that asks only for permission."""
    for number in range(max(2, given["victim"] - 300), given["victim"] + 300):
        try:
            os.kill(number, 0)
        except OSError:
            continue
        if number not in (os.getpid(), os.getppid()):
            return f"may signal process {number}"
    raise Contained("none of 600 numbers is a process")


@attack
def trace_a_process(given: Given) -> str:
    with _child() as number:
        call("ptrace", _ATTACH, number, 0, 0)
        return "traces another process"


@attack
def read_memory(given: Given) -> str:
    with _child() as number:
        return f"read {_vm('process_vm_readv', number)} bytes of another process"


@attack
def write_memory(given: Given) -> str:
    with _child() as number:
        return f"wrote {_vm('process_vm_writev', number)} bytes of another process"


@attack
def open_memory_of_others(given: Given) -> str:
    """By /proc, of every process that is not of this program: inside, those of the runtime or of a command."""
    own = {str(os.getpid()), str(os.getppid())}
    others = (f"/proc/{number}/mem" for number in _numbers() if number not in own)
    return f"opened {first(others, lambda path: touch(path, os.O_RDONLY), 'no memory of others can be opened')}"


attacks(
    {
        "raise_own_priority": (
            "runs before all others",
            lambda given: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        ),
        "enter_namespaces_of_others": (
            "is in the namespace of process 1",
            lambda given: call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
        ),
    }
)


def _vm(name: str, of: int) -> int:
    here = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(here), 8)  # a struct iovec; a fork has the same addresses
    return call(name, of, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0)


@contextmanager
def _child() -> Iterator[int]:
    number = os.fork()
    if number == 0:
        try:
            time.sleep(60)
        finally:
            os._exit(0)
    try:
        yield number
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


def _numbers() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


if __name__ == "__main__":
    main()
