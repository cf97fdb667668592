"""Files for the agent: read, written and listed without a shell, and without waiting for anything."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from aenv import Context, ToolError, register_tool

MAX_FILE_BYTES = 10_000_000
MAX_ENTRIES = 1000


@register_tool(annotations={"readOnlyHint": True})
def read_file(
    context: Context,
    path: str,
    offset: int = 0,
    limit: int | None = None,
    encoding: Literal["auto", "text", "base64"] = "auto",
) -> str | bytes:
    """Read a file: text as text, a picture as a picture, other bytes as a blob.

    Args:
        path: Absolute, or relative to the workspace.
        offset: How many bytes to leave out at the beginning.
        limit: How many bytes to read at most; without it the whole file, which may have up to 10 MB.
        encoding: "text" gives text whatever the bytes are, "base64" gives them in base64.
    """
    if offset < 0 or (limit is not None and limit < 0):
        raise ToolError(f"'offset' and 'limit' are numbers of bytes, not {offset} and {limit}")
    if limit is not None and limit > MAX_FILE_BYTES:
        raise ToolError(f"'limit' is at most {MAX_FILE_BYTES} bytes, not {limit}; read the file in parts")
    most = MAX_FILE_BYTES if limit is None else limit
    with _reported(path), _opened(context, path, os.O_RDONLY) as file:
        file.seek(offset)
        data: bytes = file.read(most + 1 if limit is None else most)
    if len(data) > most:
        raise ToolError(
            f"{path!r} has more than {MAX_FILE_BYTES} bytes; read parts of it with 'offset' and 'limit'"
        )
    if encoding == "base64":
        return base64.b64encode(data).decode()
    try:
        return data.decode(errors="replace" if encoding == "text" else "strict")
    except UnicodeDecodeError:
        return data


@register_tool
def write_file(
    context: Context,
    path: str,
    content: str,
    encoding: Literal["text", "base64"] = "text",
    append: bool = False,
) -> dict[str, Any]:
    """Write a file, and make the folders above it. What was in it is replaced, unless `append` is true.

    Args:
        path: Absolute, or relative to the workspace.
        content: The text, or bytes in base64.
        encoding: What `content` is.
        append: Whether to write behind what is there.
    """
    try:
        data = base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
    except ValueError as error:
        raise ToolError(f"'content' is not {encoding}: {error}") from None
    how = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    with _reported(path):
        (context.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        with _opened(context, path, how) as file:
            file.write(data)
    return {"path": str(context.workspace / path), "bytes": len(data)}


@register_tool(annotations={"readOnlyHint": True})
def list_files(context: Context, path: str = ".", recursive: bool = False) -> dict[str, Any]:
    """What is in a folder: name, type (file, folder, link, other) and size of each, by name; 1000 at most.

    Args:
        path: Absolute, or relative to the workspace.
        recursive: Whether to list what is in the folders below as well; links are not followed.
    """
    folder = context.workspace / path
    entries: list[dict[str, Any]] = []
    with _reported(path):
        for entry in _walk(folder, "", recursive=recursive):
            if len(entries) == MAX_ENTRIES:
                return {"path": str(folder), "entries": entries, "truncated": True}
            entries.append(entry)
    return {"path": str(folder), "entries": entries, "truncated": False}


def empty(folder: Path) -> None:
    """Remove everything in a folder, or make it anew. Links are removed, not followed, also in its own place."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir(parents=True)
    folder.chmod(folder.stat().st_mode | 0o700)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, onerror=_by_force)
        else:
            os.unlink(entry.path)


def _by_force(function: Callable[[str], object], path: str, error: object) -> None:
    """A folder that was made unreadable: its owner may make it readable again."""
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _walk(folder: Path, prefix: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = _shown(f"{prefix}{entry.name}")
        try:
            about = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        yield {"name": name, "type": _kind(about.st_mode), "size": about.st_size}
        if recursive and stat.S_ISDIR(about.st_mode):
            with contextlib.suppress(PermissionError, FileNotFoundError):
                yield from _walk(folder / entry.name, f"{name}/", recursive=True)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "other")


def _shown(name: str) -> str:
    """A file's name may be any bytes; a reply may not."""
    return os.fsencode(name).decode(errors="replace")


@contextlib.contextmanager
def _opened(context: Context, path: str, how: int) -> Iterator[Any]:
    # Without waiting: it may be a pipe whose other end is not open.
    handle = os.open(context.workspace / path, how | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ToolError(f"{path!r} is not a file; list_files shows what a folder holds")
    with open(handle, "ab" if how & os.O_APPEND else "wb" if how & os.O_WRONLY else "rb") as file:
        yield file


@contextlib.contextmanager
def _reported(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"{path!r} does not exist") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ToolError(f"{path!r}: {reason.lower()}") from None
