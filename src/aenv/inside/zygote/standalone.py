"""The runtime as the only program of a sandbox that others make, such as gVisor's.

    standalone.main() with OPTIONS               serve; they are `StandaloneOptions`
    standalone.main() with log PATH [follow]     show the log

It says on its standard output when it is ready; everything else that it or the environment prints goes to the log,
which lies in the sandbox, where it uses up the sandbox's own storage.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from ...base import logs
from ...isolation.sandbox.standalone_options import StandaloneOptions
from ...isolation.sandbox.typed_json import decode
from ..runtime import program

_IN_MODIFY = 2
_TAIL_BYTES = 4096


def main() -> NoReturn:
    """Serve, or show the log."""
    if sys.argv[1] == "log":
        show_log(sys.argv[2], follow=sys.argv[3:] == ["follow"])
    options = decode(sys.argv[1].encode(), StandaloneOptions, most_bytes=None)
    ready = os.dup(1)
    child = os.fork()
    if child:
        look_after(child, options.log, ready)
    try:
        serve(options, ready)
    except Exception:  # boundary: the engine is told, whatever it is
        _say(ready, traceback.format_exc())
    os._exit(1)


def look_after(child: int, log: str, ready: int) -> NoReturn:
    """As first process of the sandbox: collect what ends, and end with the runtime."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    printed = b""
    with contextlib.suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        printed = file.read()
    text = printed.decode(errors="replace").strip()
    _say(ready, f"it ended before it was ready{f'; it printed last:{chr(10)}{text}' if text else ''}")
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _say(ready: int, error: str) -> None:
    with contextlib.suppress(OSError):  # the engine listens no more: it was ready before
        os.write(ready, json.dumps({"ready": False, "error": error}).encode() + b"\n")


def serve(options: StandaloneOptions, ready: int) -> NoReturn:
    """Print to the log, listen, and serve."""
    log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # as for a terminal: what is printed is to be seen
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options.socket)
    listener.listen(1024)
    logs.configure()
    program.serve(
        program.RuntimeOptions(
            path=Path(options.path),
            fd=listener.detach(),
            ready_fd=ready,
            requirements=Path(options.requirements) if options.requirements else None,
            no_history=not options.keep_history,
            arguments=[*options.arguments],
        )
    )


def show_log(path: str, *, follow: bool) -> NoReturn:
    """Write what the log holds to standard output; with `follow` also what comes, until this process is ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    changes = libc.inotify_init1(os.O_CLOEXEC)
    if follow and libc.inotify_add_watch(changes, os.fsencode(path), _IN_MODIFY) < 0:
        raise OSError(ctypes.get_errno(), "the log cannot be watched")
    with open(path, "rb", buffering=0) as file:
        while True:
            while piece := file.read(1 << 16):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            if not follow:
                os._exit(0)
            os.read(changes, 1 << 16)
