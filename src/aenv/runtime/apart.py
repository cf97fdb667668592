"""The runtime as the only program of a sandbox that others make, such as gVisor's.

    python -m aenv.runtime.apart OPTIONS     serve; OPTIONS is JSON: {"log", "socket", "layer", …}
    python -m aenv.runtime.apart log PATH [follow]

It says on its standard output when it is ready; everything else that it or the environment prints goes to the log,
which lies in the sandbox, where it uses up the sandbox's own storage.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from .. import logs
from . import program

_IN_MODIFY = 2


def main() -> NoReturn:
    """Serve, or show the log."""
    if sys.argv[1] == "log":
        show_log(sys.argv[2], follow=sys.argv[3:] == ["follow"])
    ready = os.dup(1)
    try:
        serve(json.loads(sys.argv[1]), ready)
    except Exception:  # boundary: whoever waits for it is told, whatever it is
        os.write(ready, json.dumps({"ready": False, "error": traceback.format_exc()}).encode() + b"\n")
    os._exit(1)


def serve(options: dict[str, Any], ready: int) -> NoReturn:
    """Print to the log, listen, and serve."""
    log = os.open(options["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # as for a terminal: what is printed is to be seen
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(options["socket"])
    listener.listen(1024)
    logs.configure()
    program.serve(
        program.Options(
            path=Path(options["path"]),
            fd=listener.detach(),
            ready_fd=ready,
            layer=Path(options["layer"]) if options["layer"] else None,
            no_history=not options["keep_history"],
            arguments=options["arguments"],
        )
    )


def show_log(path: str, *, follow: bool) -> NoReturn:
    """Write what the log holds to standard output; with `follow` also what comes, until somebody ends this."""
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


if __name__ == "__main__":
    main()
