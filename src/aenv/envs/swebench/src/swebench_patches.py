"""Patches: unified diffs, as git writes them and models try to: read, applied to a tree, and made.

Applied without git: nothing of the tree or of a user's settings takes part, and no path leads out of the tree or
through a link. Binary patches and links are refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from swebench_paths import leads_out

_HUNK = re.compile(r"@@ -(?P<old>\d+)(?:,(?P<olds>\d+))? \+(?P<new>\d+)(?:,(?P<news>\d+))? @@")
_NO_NEWLINE = "\\"
_MOST_FUZZ = 3  # lines of context that may differ at either end, as patch(1) allows
_BINARY_PROBE = 8000  # bytes in which git looks for a zero


class PatchError(ValueError):
    """A patch that cannot be read, or does not apply; the message says where."""


@dataclass
class Hunk:
    """One change: `before` stands from line `start` on (counted from 1), and becomes `after`."""

    start: int
    lines: list[str]
    """Each begins with " ", "-" or "+", and has its line's end unless the file ends without one."""

    @property
    def before(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] in " -"]

    @property
    def after(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] in " +"]

    def context(self) -> tuple[int, int]:
        """How many lines of context it has at its beginning and its end."""
        marks = "".join(line[0] for line in self.lines)
        return len(marks) - len(marks.lstrip(" ")), len(marks) - len(marks.rstrip(" "))


@dataclass
class FilePatch:
    """What becomes of one file: `old` is None for a new one, `new` for one that is removed."""

    old: str | None
    new: str | None
    hunks: list[Hunk]
    is_executable: bool | None = None
    is_copy: bool = False

    @property
    def paths(self) -> set[str]:
        return {path for path in (self.old, self.new) if path is not None}


def parse(text: str) -> list[FilePatch]:
    """The files of a patch. PatchError says in which line it makes no sense."""
    lines = text.replace("\r\n", "\n").split("\n") if _is_all_crlf(text) else text.split("\n")
    return [*_Reader(lines).files()]


def paths(text: str) -> set[str]:
    """All files that a patch touches, by their old and new names."""
    return {path for file in parse(text) for path in file.paths}


def apply(text: str, tree: Path) -> set[str]:
    """Apply a patch to the files of `tree`, all or nothing; the paths that it touched."""
    results: dict[str, str | None] = {}
    modes: dict[str, bool] = {}
    for file in parse(text):
        content = _before(file, tree, results)
        for number, hunk in enumerate(file.hunks, 1):
            content = _with_hunk(content, hunk, f"{file.new or file.old!r}, change {number}")
        if file.old is not None and file.old != file.new and not file.is_copy:
            results[file.old] = None
        if file.new is not None:
            results[file.new] = "".join(content)
            if file.is_executable is not None:
                modes[file.new] = file.is_executable
    for path in sorted(results, key=lambda path: results[path] is not None):  # removals first
        place = inside(tree, path)
        if (now := results[path]) is None:
            remove(tree, path)
        else:
            _write(place, now, path)
            if path in modes:
                place.chmod(0o755 if modes[path] else 0o644)
    return set(results)


def inside(tree: Path, path: str) -> Path:
    """The place of a path of the tree. PatchError for one that is not surely in it."""
    parts = PurePosixPath(path).parts
    if leads_out(path) or ".git" in parts:
        raise PatchError(f"the path {path!r} is not within the repository")
    place = tree
    for part in parts:
        place = place / part
        if place.is_symlink():
            raise PatchError(f"the path {path!r} leads over the link {str(place.relative_to(tree))!r}")
    return place


def remove(tree: Path, path: str) -> None:
    """Remove a file, and the folders that are empty then."""
    place = inside(tree, path)
    if place.is_file():
        place.unlink()
    for parent in place.parents:
        if parent == tree or not parent.is_dir() or any(parent.iterdir()):
            break
        parent.rmdir()


def diff(path: str, before: bytes | None, after: bytes | None, was_executable: bool, is_executable: bool) -> str:
    """The change of one file as git writes it; empty when there is none. PatchError when it is not text."""
    if before == after and was_executable == is_executable:
        return ""
    if any(data is not None and b"\0" in data[:_BINARY_PROBE] for data in (before, after)):
        raise PatchError(f"{path!r} is not text")
    head = f"diff --git a/{path} b/{path}\n"
    if before is None:
        head += f"new file mode {'100755' if is_executable else '100644'}\n"
    elif after is None:
        head += f"deleted file mode {'100755' if was_executable else '100644'}\n"
    elif was_executable != is_executable:
        modes = ("100755", "100644")
        head += f"old mode {modes[not was_executable]}\nnew mode {modes[not is_executable]}\n"
    old = "/dev/null" if before is None else f"a/{path}"
    new = "/dev/null" if after is None else f"b/{path}"
    lines = difflib.unified_diff(_lines(_text(before or b"")), _lines(_text(after or b"")), old, new)
    return head + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _is_all_crlf(text: str) -> bool:
    return "\n" in text and text.count("\n") == text.count("\r\n")


class _Reader:
    """Goes through the lines of a patch."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines if lines[-1] else lines[:-1]
        self._at = 0

    def files(self) -> Iterator[FilePatch]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                yield self._of_git()
            elif line.startswith("--- ") and self._next().startswith("+++ "):
                file = FilePatch(_name(line[4:]), _name(self._next()[4:]), [])
                self._at += 2
                self._hunks(file)
                yield self._checked(file)
            elif _HUNK.match(line):
                raise self._error("a change without the name of its file ('--- a/…', '+++ b/…') above it")
            else:
                self._at += 1  # what mail and chat put around a patch

    def _of_git(self) -> FilePatch:
        file = FilePatch(*_both_names(self._lines[self._at]), [])
        self._at += 1
        while self._at < len(self._lines):
            line = self._lines[self._at]
            key, _, value = line.partition(" mode ")
            if line.startswith(("rename from ", "copy from ")):
                file.old, file.is_copy = _plain(_unquoted(line.partition(" from ")[2])), line.startswith("copy")
            elif line.startswith(("rename to ", "copy to ")):
                file.new = _plain(_unquoted(line.partition(" to ")[2]))
            elif key in ("new file", "deleted file", "old", "new") and value:
                self._mode(file, key, value.strip())
            elif line.startswith("--- ") and self._next().startswith("+++ "):
                file.old, file.new = _name(line[4:]), _name(self._next()[4:])
                self._at += 2
                self._hunks(file)
                break
            elif line.startswith(("GIT binary patch", "Binary files ")):
                raise self._error(f"{file.new or file.old!r} is changed by a binary patch, which is not applied")
            elif not line.startswith(("index ", "similarity index ", "dissimilarity index ")):
                break
            self._at += 1
        return self._checked(file)

    def _mode(self, file: FilePatch, key: str, mode: str) -> None:
        if mode in ("120000", "160000"):
            raise self._error(f"{file.new or file.old!r} is a link or a submodule, which are not made")
        if key == "new file":
            file.old = None
        if key == "deleted file":
            file.new = None
        elif key != "old":
            file.is_executable = mode == "100755"

    def _hunks(self, file: FilePatch) -> None:
        while self._at < len(self._lines) and (head := _HUNK.match(self._lines[self._at])):
            self._at += 1
            hunk = Hunk(int(head["old"]), [])
            olds, news = int(head["olds"] or 1), int(head["news"] or 1)
            while olds > 0 or news > 0:
                if self._at >= len(self._lines):
                    raise self._error("the patch ends within a change")
                line = self._lines[self._at] or " "  # an empty line of context may have lost its blank
                if line[0] == _NO_NEWLINE:
                    self._cut(hunk)
                elif line[0] in " +-":
                    olds -= line[0] in " -"
                    news -= line[0] in " +"
                    hunk.lines.append(line + "\n")
                else:
                    raise self._error(f"{line[:40]!r} within a change of {file.new or file.old!r}")
                self._at += 1
            if olds < 0 or news < 0:
                raise self._error(f"a change of {file.new or file.old!r} has more lines than it says")
            if self._at < len(self._lines) and self._lines[self._at].startswith(_NO_NEWLINE):
                self._cut(hunk)
                self._at += 1
            file.hunks.append(hunk)

    def _cut(self, hunk: Hunk) -> None:
        if not hunk.lines:
            raise self._error("'\\ No newline' before any line")
        hunk.lines[-1] = hunk.lines[-1].removesuffix("\n")

    def _checked(self, file: FilePatch) -> FilePatch:
        if file.old is None and file.new is None:
            raise self._error("a change of /dev/null into /dev/null")
        return file

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _error(self, why: str) -> PatchError:
        return PatchError(f"line {min(self._at + 1, len(self._lines))} of the patch: {why}")


def _name(text: str) -> str | None:
    """The path after "---" or "+++": without a/ or b/, and without the time that may follow."""
    name = _unquoted(text.split("\t")[0].rstrip())
    if name == "/dev/null":
        return None
    return _plain(name[2:] if name[:2] in ("a/", "b/") else name)


def _plain(name: str) -> str:
    """The one name of a file, which may also be written as "./x" or as "a//x"."""
    return str(PurePosixPath(name))


def _both_names(line: str) -> tuple[str | None, str | None]:
    """The names of a "diff --git" line: all there is when only the mode changes, or the name."""
    rest = line.removeprefix("diff --git ")
    if match := re.match(r'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)$', rest):
        return _name(match[1]), _name(match[2])
    half = len(rest) // 2  # names with blanks: both are the same, but for their first letter
    return _name(rest[:half]), _name(rest[half + 1 :])


def _unquoted(name: str) -> str:
    if not (len(name) > 1 and name[0] == name[-1] == '"'):
        return name
    plain = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
    pieces = re.sub(
        r"\\([0-7]{3}|.)", lambda m: chr(int(m[1], 8)) if m[1].isdigit() else plain.get(m[1], m[1]), name[1:-1]
    )
    try:
        return pieces.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return pieces


def _before(file: FilePatch, tree: Path, results: dict[str, str | None]) -> list[str]:
    """The lines that a file has before its change, in the tree or by what the patch has done so far."""
    for path in file.paths:
        inside(tree, path)
    if file.old is None:
        return []
    if file.old in results:
        known = results[file.old]
        if known is None:
            raise PatchError(f"{file.old!r} is changed after it was removed")
        return _lines(known)
    place = inside(tree, file.old)
    if not place.is_file():
        raise PatchError(f"there is no file {file.old!r} to change")
    return _lines(_text(place.read_bytes()))


def _with_hunk(content: list[str], hunk: Hunk, where: str) -> list[str]:
    first, last = hunk.context()
    for fuzz in range(_MOST_FUZZ + 1):
        head, tail = min(fuzz, first), min(fuzz, last)
        if fuzz and (head, tail) == (min(fuzz - 1, first), min(fuzz - 1, last)):
            break
        before, after = hunk.before, hunk.after
        old, new = before[head : len(before) - tail], after[head : len(after) - tail]
        if fuzz and not old:
            break  # it would apply anywhere
        # What changes no line is put after the line that it names.
        at = _found(content, old, hunk.start - 1 + head) if old else min(hunk.start, len(content))
        if at is not None:
            return content[:at] + new + content[at + len(old) :]
    raise PatchError(f"{where} (line {hunk.start}) does not apply: the lines that it changes are not there")


def _found(content: list[str], wanted: list[str], expected: int) -> int | None:
    """Where these lines stand: the place nearest to where they are expected."""
    expected, last = max(expected, 0), len(content) - len(wanted)
    for distance in range(max(expected, last) + 1):
        for at in {expected - distance, expected + distance}:
            if 0 <= at <= last and content[at] == wanted[0] and content[at : at + len(wanted)] == wanted:
                return at
    return None


def _write(place: Path, content: str, path: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8", "surrogateescape"))
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise PatchError(f"{path!r} cannot be written: a file or a folder is in its way") from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends a line."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
