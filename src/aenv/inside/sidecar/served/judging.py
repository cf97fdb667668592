"""What a verdict on the sidecar needs: nothing of what an agent has left there may take part in it.

Its processes are ended, the image's own files put back, and code runs in a fork of this process, whose interpreter
and libraries are not the image's, were loaded before the agent came, and cannot be looked into from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from aenv import Context, register_function
from aenv.base import settings
from aenv.base.errors import StartFailed
from aenv.inside.author.sidecar_replies import PythonReply
from aenv.isolation.sandbox.inside_paths import ORIGINAL
from aenv.isolation.sandbox.removal import let_in
from aenv.isolation.sandbox.removal import remove as discard

from .sidecar_commands import CappedOutput, children, end_session, exit_code, kill, pids, reply

_ROUNDS = 100
_ANSWER = 3  # the descriptor on which a fork answers
_MAX_DESCRIPTORS = 1 << 16
# What the dynamic linker reads before every program, and where programs of a system lie, or links to them.
_SETTINGS = ("etc/ld.so.preload", "etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d", "etc/alternatives")
_SYSTEM = (
    *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr/bin", "usr/sbin", "usr/lib", "usr/lib32"),
    *("usr/lib64", "usr/libx32", "usr/libexec", "usr/local"),
)
_PROGRAMS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
# What Python runs without being asked: where an image has none of these, no command may add any.
_RUN_BY_ITSELF = ("sitecustomize.py", "usercustomize.py")
_restored: dict[str, tuple[int, ...]] = {}
"""What was put back before, with its stamp since then."""


@register_function
async def end_processes() -> None:
    """End every process but this one."""
    for _ in range(_ROUNDS):
        others = [pid for pid in pids() if pid != os.getpid() and _lives(pid)]
        if not others:
            return
        kill(others, -1)  # all at once: none of them can start another meanwhile
        await asyncio.sleep(0)
    raise StartFailed("the processes of the sidecar do not end")


@register_function
def processes() -> int:
    """How many there are besides this one."""
    return sum(1 for pid in pids() if pid != os.getpid() and _lives(pid))


@register_function
def restore() -> list[str]:
    """Put back the programs, libraries and settings of the linker that the image has; what was changed.

    Programs that were added stay, unless one stands before a program of the image in PATH.
    """
    changed: list[str] = []
    settings = [f"etc/{name}" for name in _names(f"{ORIGINAL}/etc") if name.startswith("python3")]
    for name in (*_SETTINGS, *settings, *_SYSTEM):
        _put_back(name, changed)
    there = {name for folder in _PROGRAMS for name in _names(f"{ORIGINAL}/{folder}")}
    for folder in _PROGRAMS:
        if os.path.islink(f"/{folder}"):
            continue
        for name in _names(f"/{folder}"):
            if name in there and not os.path.lexists(f"{ORIGINAL}/{folder}/{name}") and _is_ours(folder):
                discard(f"/{folder}/{name}")
                changed.append(f"/{folder}/{name}")
    return sorted(changed)


@register_function
def put_folder(path: str, files: dict[str, str], modes: dict[str, int]) -> None:
    """Make a folder that holds these files (their text, by path) and nothing else, whatever was there before."""
    discard(path)
    os.makedirs(path, mode=0o755)
    for name, text in files.items():
        place = Path(path, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("utf-8", "surrogateescape"))
        place.chmod(modes.get(name, 0o644))


@register_function
def remove(path: str) -> None:
    """Remove a file, a link or a folder; fine when there is none."""
    discard(path)


@register_function
async def python(
    context: Context,
    code: str,
    arguments: dict[str, Any],
    timeout: float | None,
    variables: dict[str, str],
) -> dict[str, Any]:
    """Run `main(**arguments)` of some Python code in a fork of this process; what it gives back, and printed."""
    out, err = os.pipe(), os.pipe()
    answer = os.memfd_create("answer")
    given = {**context.variables, **variables}

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            try:
                _be_another((out[1], err[1], answer), given)
                _run(code, arguments)
            finally:
                os._exit(1)
        return pid

    try:
        pid, ended = children.track(fork)
    finally:
        os.close(out[1])
        os.close(err[1])
    outputs = [CappedOutput(os.fdopen(end, "rb", buffering=0)) for end in (out[0], err[0])]
    try:
        status = await exit_code(ended, timeout)
    finally:
        if not ended.done():
            end_session(pid)
        for output in outputs:
            output.close()
        text = os.pread(answer, os.fstat(answer).st_size, 0)
        os.close(answer)
    said = reply(status, outputs[0].data, outputs[1].data, any(output.is_cut for output in outputs))
    return vars(PythonReply(**vars(said), answer=text.decode() if status == 0 else ""))


# In the fork


def _be_another(ends: tuple[int, int, int], variables: dict[str, str]) -> None:
    """Leave everything of the process that it was forked from, but for its memory."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    kept = [os.dup(end) for end in (null, *ends)]
    for target, source in enumerate(kept):
        os.dup2(source, target, inheritable=target < _ANSWER)
    os.closerange(_ANSWER + 1, _MAX_DESCRIPTORS)
    settings.give(variables)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False, errors="replace", buffering=1)
    sys.stderr = os.fdopen(2, "w", closefd=False, errors="replace", buffering=1)
    sys.argv = ["judge"]
    os.chdir("/")


def _run(code: str, arguments: dict[str, Any]) -> NoReturn:
    status = 1
    try:
        space: dict[str, Any] = {"__name__": "__judge__"}
        exec(compile(code, "<judge>", "exec"), space)
        data = json.dumps(space["main"](**arguments)).encode()
        while data:
            data = data[os.write(_ANSWER, data) :]
        status = 0
    except BaseException:  # boundary: the caller is told
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


# Files


def _put_back(name: str, changed: list[str]) -> None:
    """Make what is at a path what the image has there, folders with all that was in them."""
    old, new = f"{ORIGINAL}/{name}", f"/{name}"
    was, now = _facts(old), _facts(new)
    if was is None:
        if now is not None and name.startswith("etc/"):
            discard(new)
            changed.append(new)
        return
    if stat.S_ISDIR(was.st_mode) and now is not None and stat.S_ISDIR(now.st_mode):
        # A change of something below a folder changes the folders above it: they are copied then.
        if _stamp(was) != _stamp(now) and _is_ours(name):
            _look_into(name, changed)
    elif now is None or _stamp(now) not in (_stamp(was), _restored.get(new)):
        discard(new)
        _copy(old, new)
        _restored[new] = _stamp(os.lstat(new))
        changed.append(new)


def _look_into(name: str, changed: list[str]) -> None:
    there = _names(f"{ORIGINAL}/{name}")
    for inner in sorted(there):
        _put_back(f"{name}/{inner}", changed)
    in_python = "/python3" in f"/{name}"
    is_cache = name.endswith("__pycache__")
    for inner in sorted(_names(f"/{name}") - there):
        is_linkers = name == "etc/ld.so.conf.d"
        runs = in_python and (inner in _RUN_BY_ITSELF or inner.endswith(".pth") or inner == "__pycache__")
        if is_linkers or is_cache or runs:
            discard(f"/{name}/{inner}")
            changed.append(f"/{name}/{inner}")


def _is_ours(name: str) -> bool:
    """Whether it can have been changed: what is bound read-only is not in the original, and is as it was."""
    return not os.statvfs(f"/{name}").f_flag & os.ST_RDONLY


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    """Of a file that was not touched since: the time of its last change cannot be set."""
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return facts.st_mode, size, facts.st_mtime_ns, facts.st_ctime_ns


def _facts(path: str) -> os.stat_result | None:
    with contextlib.suppress(OSError):
        return os.lstat(path)
    return None


def _names(path: str) -> set[str]:
    with contextlib.suppress(OSError):
        return set(os.listdir(path))
    return set()


def _copy(old: str, new: str) -> None:
    os.makedirs(os.path.dirname(new), exist_ok=True)
    let_in(os.path.dirname(new))
    if os.path.islink(old) or not os.path.isdir(old):
        shutil.copy2(old, new, follow_symlinks=False)
    else:
        shutil.copytree(old, new, symlinks=True)


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return False
