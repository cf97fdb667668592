"""Python code that runs beside a project: in a process of its own, in a folder with the project's files.

What the code leaves in the folder becomes the project's, as far as its limits allow.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from mini_program_files import MAX_FILE_BYTES, Project
from mini_program_paths import cleaned

from aenv import ToolError

MAX_SECONDS = 50.0
_MOST_OUTPUT = 100_000  # bytes of each stream
_MOST_ENTRIES = 5_000  # of the folder that are looked at
_MOST_IGNORED = 20
_DRAIN = 1.0  # seconds for output of a process that has left its group
_UNSEEN = frozenset({"__pycache__"})


def run(project: Project, code: str, timeout: float) -> dict[str, Any]:
    """Run the code, and take over the files that it has changed."""
    with tempfile.TemporaryDirectory(prefix="mini-program-") as name:
        folder = Path(name)
        before = project.all()
        for path, content in before.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        said = _ran(code, folder, timeout)
        try:
            after, ignored = _found(folder)
            written = {path: content for path, content in after.items() if before.get(path) != content}
            removed = {path for path in before if path not in after and path not in ignored}
            changed = project.change(written, removed, "run Python")
        except ToolError as error:
            changed, ignored = [], {"all changes": str(error)}
    told = [f"{path}: {why}" for path, why in ignored.items()]
    return {**said, "changed": changed, "ignored": told[:_MOST_IGNORED]}


def _ran(code: str, folder: Path, timeout: float) -> dict[str, Any]:
    # With the code as its input it finds modules of the project, and its own input is at its end.
    process = subprocess.Popen(
        [sys.executable, "-B", "-"],
        cwd=folder,
        env={**_kept(os.environ), "HOME": str(folder), "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    streams = [_Stream(process.stdout), _Stream(process.stderr)]
    feeder = threading.Thread(target=_feed, args=(process.stdin, code.encode()), daemon=True)
    feeder.start()
    has_ended = True
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        has_ended = False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for one in (*streams, feeder):
        one.join(_DRAIN)
    out, err = (stream.text() for stream in streams)
    if not has_ended:
        err += f"\n[ended after {timeout:g} s]"
    return {"stdout": out, "stderr": err, "exit_code": process.returncode, "timed_out": not has_ended}


def _feed(pipe: IO[bytes], code: bytes) -> None:
    with contextlib.suppress(OSError), pipe:  # it may end before it has read all
        pipe.write(code)


class _Stream(threading.Thread):
    """Reads a pipe to its end, and keeps the first part."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._kept = bytearray()
        self._size = 0
        self.start()

    def run(self) -> None:
        while piece := os.read(self._pipe.fileno(), 1 << 16):
            self._size += len(piece)
            self._kept += piece[: max(0, _MOST_OUTPUT - len(self._kept))]
        self._pipe.close()

    def text(self) -> str:
        shown = bytes(self._kept).decode(errors="replace")
        left = self._size - len(self._kept)
        return f"{shown}\n[{left:,} more bytes]" if left else shown


def _kept(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: variables[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in variables}


def _found(folder: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files in the folder, and why others cannot be a project's."""
    files: dict[str, bytes] = {}
    ignored: dict[str, str] = {}
    for number, entry in enumerate(_walk(folder)):
        path = os.path.relpath(entry.path, folder)
        if number >= _MOST_ENTRIES:
            raise ToolError(f"the code has left more than {_MOST_ENTRIES} files, so none was taken over")
        if problem := _problem(entry, path):
            ignored[path] = problem
        else:
            files[path] = Path(entry.path).read_bytes()
    return files, ignored


def _problem(entry: os.DirEntry[str], path: str) -> str:
    if not entry.is_file(follow_symlinks=False):
        return "it is not a plain file"
    if entry.stat(follow_symlinks=False).st_size > MAX_FILE_BYTES:
        return f"it has more than {MAX_FILE_BYTES:,} bytes"
    try:
        return "" if cleaned(path) == path else "its name cannot be that of a project's file"
    except ToolError as error:
        return str(error)


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What is not a folder, at any depth; links are not followed."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif entry.name not in _UNSEEN:
                os.chmod(entry.path, 0o700)  # the code may have made it unreadable
                waiting.append(Path(entry.path))
