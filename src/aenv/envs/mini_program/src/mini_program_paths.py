"""Paths of a project's files: names with "/" between folders, which mean nothing to any real file system."""

from __future__ import annotations

from aenv import ToolError

MAX_PATH = 200
MAX_PART = 100
_SHOWN = 80


def chosen(path: str, file_path: str, default: str = "") -> str:
    """The file that a call means by `path` or `file_path`, which are two names of one parameter."""
    if path and file_path and cleaned(path) != cleaned(file_path):
        raise ToolError("'path' and 'file_path' name two files; give one of them")
    given = path or file_path or default
    if not given:
        raise ToolError("give the path of the file as 'path', such as 'index.html'")
    return cleaned(given)


def cleaned(path: str) -> str:
    """The path as the project keeps it: "/a/./b.css" is "a/b.css". ToolError for one that no file can have."""
    parts = [part for part in path.strip().split("/") if part not in ("", ".")]
    shown = repr(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…")
    if not parts:
        raise ToolError(f"{shown} names no file; write the path as 'css/style.css'")
    if ".." in parts:
        raise ToolError(f"{shown} leads out of the project; write the path from its top, without '..'")
    if "\\" in path or any(not character.isprintable() for character in path):
        raise ToolError(f"{shown} has characters that a path cannot have; use '/' between folders")
    if len("/".join(parts)) > MAX_PATH or any(len(part) > MAX_PART for part in parts):
        raise ToolError(f"{shown} is too long: at most {MAX_PATH} characters, and {MAX_PART} in one name")
    return "/".join(parts)


def folder(directory: str) -> str:
    """What the paths below a folder begin with: "" for the top, else "css/"."""
    parts = [part for part in directory.split("/") if part not in ("", ".")]
    return f"{cleaned(directory)}/" if parts else ""
