"""What the attack programs share. They need nothing but Python, and run inside an instance as well as outside.

    python files.py '{"attacks": ["read_shadow"], "secret": "/home/…"}'

An attack is a function that does something it should not be able to, and says what it has got. When it is refused
it raises OSError or `Contained`. Each runs in a process of its own; one line of JSON is printed for each.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
Given = dict[str, Any]
# The numbers of x86_64 and of aarch64.
_CALLS = """
    add_key 248 217, bpf 321 280, capset 126 91, clock_settime 227 112, clone 56 220, finit_module 313 273,
    kexec_load 246 104, open_by_handle_at 304 265, perf_event_open 298 241, personality 135 92, pivot_root 155 41,
    process_vm_readv 310 270, process_vm_writev 311 271, ptrace 101 117, reboot 169 142, sethostname 170 161,
    setns 308 268, swapon 167 224, syslog 103 116, unshare 272 97, userfaultfd 323 282
"""
_NUMBERS = {name: (int(one), int(other)) for name, one, other in map(str.split, _CALLS.split(","))}
_attacks: dict[str, Callable[[Given], str]] = {}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


class Contained(Exception):
    """It was tried, and there was nothing to be had."""


def attack(function: Callable[[Given], str]) -> Callable[[Given], str]:
    _attacks[function.__name__] = function
    return function


def attacks(acts: Mapping[str, tuple[str, Callable[[Given], object]]]) -> None:
    """Those that do one thing: by name, what they say then, with what that gave in the place of {}."""
    for name, (said, act) in acts.items():
        _attacks[name] = lambda given, said=said, act=act: said.format(act(given))  # type: ignore[misc]


def known() -> list[str]:
    """The names of all."""
    return [*_attacks]


def first(ways: Iterable[T], act: Callable[[T], object], otherwise: str) -> T:
    """The first of these with which `act` is not refused. Contained says `otherwise` when there is none."""
    for way in ways:
        try:
            act(way)
        except OSError:
            continue
        return way
    raise Contained(otherwise)


def run(name: str, given: Given) -> dict[str, Any]:
    """In this process: {"name", "succeeded", "said"}."""
    try:
        return {"name": name, "succeeded": True, "said": _attacks[name](given)}
    except (OSError, Contained, MemoryError) as error:
        return {"name": name, "succeeded": False, "said": f"{type(error).__name__}: {error}"}


def main() -> NoReturn:
    """Run all that are asked for; the exit code is 0 when one of them has succeeded, as for an attacker."""
    given = json.loads(sys.argv[1])
    verdicts = [_apart(name, given) for name in given["attacks"] or known()]
    for verdict in verdicts:
        print(json.dumps(verdict), flush=True)
    print("succeeded" if any(verdict["succeeded"] for verdict in verdicts) else "contained", file=sys.stderr)
    sys.exit(not any(verdict["succeeded"] for verdict in verdicts))


def _apart(name: str, given: Given) -> dict[str, Any]:
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        try:
            os.write(sink, json.dumps(run(name, given)).encode())
            os._exit(0)
        except BaseException as error:
            os.write(sink, json.dumps({"name": name, "succeeded": None, "said": f"broken: {error!r}"}).encode())
        finally:
            os._exit(1)
    os.close(sink)
    with open(source, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text:
        verdict: dict[str, Any] = json.loads(text)
        return verdict
    return {
        "name": name,
        "succeeded": False,
        "said": f"its process was ended: {os.waitstatus_to_exitcode(status)}",
    }


def call(number: int | str, *arguments: Any) -> int:
    """A system call by its number, or by its name where that is another on each machine."""
    if isinstance(number, str):
        number = _NUMBERS[number][platform.machine() == "aarch64"]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *words))


def checked(result: int) -> int:
    """What a function of the C library gave. OSError when that was an error."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def mount(source: bytes | None, target: bytes, kind: bytes | None = None, flags: int = 0) -> None:
    checked(libc.mount(source, target, kind, flags, None))


def touch(path: str, flags: int) -> None:
    """Open something, and close it again."""
    os.close(os.open(path, flags))


def own(given: Given, name: str) -> str:
    """A path in the folder in which attacks may write."""
    return os.path.join(given["own_folder"], name)


def reached(number: int | str, *arguments: Any, errors: tuple[int, ...]) -> str:
    """Make a call that the kernel refuses for its nonsense: with one of `errors`, when we may make it at all."""
    try:
        return f"the call gave {call(number, *arguments)}"
    except OSError as error:
        if error.errno in errors:
            return f"the kernel looked at it: {errno.errorcode[error.errno]}"
        raise
