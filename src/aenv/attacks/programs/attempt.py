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
from collections.abc import Callable
from typing import Any, NoReturn

Given = dict[str, Any]
_attacks: dict[str, Callable[[Given], str]] = {}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Contained(Exception):
    """It was tried, and there was nothing to be had."""


def attack(function: Callable[[Given], str]) -> Callable[[Given], str]:
    _attacks[function.__name__] = function
    return function


def run(name: str, given: Given) -> dict[str, Any]:
    """In this process: {"name", "succeeded", "said"}."""
    try:
        return {"name": name, "succeeded": True, "said": _attacks[name](given)}
    except (OSError, Contained, MemoryError) as error:
        return {"name": name, "succeeded": False, "said": f"{type(error).__name__}: {error}"}


def main() -> NoReturn:
    """Run all that are asked for; the exit code is 0 when one of them has succeeded, as for an attacker."""
    given = json.loads(sys.argv[1])
    verdicts = [_apart(name, given) for name in given["attacks"] or _attacks]
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


def call(number: int | dict[str, int], *arguments: Any) -> int:
    """A system call by its number, or by the machine's."""
    if isinstance(number, dict):
        number = number[platform.machine()]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def reached(number: int | dict[str, int], *arguments: Any, errors: tuple[int, ...]) -> str:
    """Make a call that the kernel refuses for its nonsense: with one of `errors`, when we may make it at all."""
    try:
        return f"the call gave {call(number, *arguments)}"
    except OSError as error:
        if error.errno in errors:
            return f"the kernel looked at it: {errno.errorcode[error.errno]}"
        raise
