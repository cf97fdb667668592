"""Results on disk: one JSON object a line, appended as episodes end, and read again to go on."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..base.errors import Conflict, InvalidRequest
from ..base.outcomes import Outcome
from . import attempts

Result = dict[str, Any]
_OF_ONE_FILE = ("environment", "digest", "agent", "model", "seed")


class ResultFile:
    """A file of results that only this process writes. The last line of an attempt at a task counts."""

    def __init__(self, file: BinaryIO, known: dict[tuple[str, int], Result]) -> None:
        self._file = file
        self.known = known

    def append(self, result: Mapping[str, Any]) -> None:
        """Write one result, whole and at once, so that a crash costs the episode under way and no other."""
        self._file.write(json.dumps(result, ensure_ascii=False).encode() + b"\n")
        self._file.flush()


@contextmanager
def created(path: Path) -> Iterator[ResultFile]:
    """A new file; Conflict where there is one with something in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        _lock(file, path)
        if path.stat().st_size:
            raise Conflict(f"{str(path)!r} has results already; go on there with --resume, or name another file")
        yield ResultFile(file, {})


@contextmanager
def resumed(path: Path, same: Mapping[str, Any], repeat: int = 1) -> Iterator[ResultFile]:
    """A file to go on with, by task and attempt. A torn last line is taken away.

    Its results must have the values of `same`, and be of the first `repeat` attempts at their task.
    """
    with path.open("r+b") as file:
        _lock(file, path)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        known: dict[tuple[str, int], Result] = {}
        for number, line in enumerate(whole.splitlines(), 1):
            result = _read(path, number, line)
            _check_same(path, number, result, same)
            if attempts.number(result) > repeat:
                raise Conflict(
                    f"{str(path)!r} line {number} is of attempt {attempts.number(result)}; go on with --repeat "
                    f"{attempts.number(result)} or more"
                )
            known[result["task"], attempts.number(result)] = result
        file.truncate(len(whole))
        file.seek(len(whole))
        yield ResultFile(file, known)


def read(path: Path) -> list[Result]:
    """The results in a file, also while it is written; the last line of each attempt at a task counts."""
    content = path.read_bytes()
    found: dict[tuple[str, int], Result] = {}
    first: Result = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        result = _read(path, number, line)
        first = first or result
        _check_same(path, number, result, {key: first.get(key) for key in _OF_ONE_FILE})
        found[result["task"], attempts.number(result)] = result
    if not found:
        raise InvalidRequest(f"{str(path)!r} has no results")
    return list(found.values())


def _check_same(path: Path, number: int, result: Result, same: Mapping[str, Any]) -> None:
    for key, value in same.items():
        if result.get(key) != value:
            raise Conflict(
                f"{str(path)!r} line {number} is of {key} {result.get(key)!r}, and this is {value!r}; "
                "results of both do not belong together"
            )


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"another evaluation writes to {str(path)!r}; wait for it, or name another file") from None


def _read(path: Path, number: int, line: bytes) -> Result:
    try:
        result = json.loads(line)
    except ValueError as error:
        raise InvalidRequest(f"{str(path)!r} line {number} is not JSON: {error}") from error
    if not isinstance(result, dict) or not isinstance(result.get("task"), str) or not _is_result(result):
        raise InvalidRequest(
            f"{str(path)!r} line {number} is not a result: it needs 'task', 'reward' and one of the outcomes "
            f"{', '.join(Outcome)}; 'attempt', if there, is a number above 0"
        )
    return result


def _is_result(result: Result) -> bool:
    attempt = result.get("attempt", 1)
    if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 1:
        return False
    if result.get("outcome") == Outcome.REWARD:
        reward = result.get("reward")
        return isinstance(reward, int | float) and 0 <= reward <= 1 and isinstance(result.get("passed"), bool)
    return result.get("outcome") in tuple(Outcome) and result.get("reward") is None
