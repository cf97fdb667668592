"""Results on disk: one JSON object a line, appended as episodes end, and read again to go on."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import Conflict, InvalidRequest
from .statistics import OUTCOMES

Result = dict[str, Any]


class ResultFile:
    """A file of results that only this process writes. The last line of a task is the one that counts."""

    def __init__(self, file: BinaryIO, known: dict[str, Result]) -> None:
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
def resumed(path: Path, same: Mapping[str, Any]) -> Iterator[ResultFile]:
    """A file to go on with. Its results must have the values of `same`; a torn last line is taken away."""
    with path.open("r+b") as file:
        _lock(file, path)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        known = {}
        for number, line in enumerate(whole.splitlines(), 1):
            result = _read(path, number, line)
            for key, value in same.items():
                if result.get(key) != value:
                    raise Conflict(
                        f"{str(path)!r} line {number} is of {key} {result.get(key)!r}, and this is {value!r}; "
                        "results of both do not belong together"
                    )
            known[result["task"]] = result
        file.truncate(len(whole))
        file.seek(len(whole))
        yield ResultFile(file, known)


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
        raise InvalidRequest(f"{str(path)!r} line {number} is no result: it needs 'task', 'reward' and 'outcome'")
    return result


def _is_result(result: Result) -> bool:
    reward = result.get("reward")
    return result.get("outcome") in OUTCOMES and (reward is None or isinstance(reward, int | float))
