"""The journal of a run: one JSON object a line, appended as things happen, and read again to go on.

Every line is written whole and at once, so that a process that is killed loses at most the step in flight. A torn
last line, which a full disk or a crash of the machine leaves, is not read, and is taken away when the run goes on.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..base import wire
from ..base.errors import AEnvError, Conflict, InvalidRequest
from . import bounded_json, known_secrets, run_owner
from .results import RolloutResult, RunIdentity
from .trajectory import SCHEMA, Trajectory, read_head, read_step

logger = logging.getLogger("aenv.rollouts.journal")

Mode = Literal["new", "resume", "either"]
"""Whether a file with results is refused, is needed, or is gone on with where there is one.

With "resume" it may have results of other code of the agent.
"""


class NotRecorded(AEnvError):
    """The journal could not be written, so that what happened is not on record."""

    code = "not_recorded"


@dataclass
class Recorded:
    """What a journal holds: results by task and attempt, of which the last counts, and every trajectory."""

    results: dict[tuple[str, int], RolloutResult] = field(default_factory=dict)
    trajectories: dict[str, Trajectory] = field(default_factory=dict)
    """By the id of the rollout, in the order in which they began."""
    runs: list[RunIdentity] = field(default_factory=list)
    tools: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    owner: str = ""
    """The process that has written the lines since the last `run`."""

    @property
    def orphans(self) -> list[str]:
        """Instances of rollouts that were under way when their process ended.

        A copy of a journal is not locked, so the process that wrote it may still play.
        """
        left = [one for one in self.trajectories.values() if not one.result and one.head.instance]
        return [one.head.instance for one in left if run_owner.is_gone(one.owner)]

    @property
    def eval_only(self) -> bool:
        return any(run.eval_only for run in self.runs) or any(one.run.eval_only for one in self.results.values())


class Journal:
    """A file that only this process writes; None writes nowhere."""

    def __init__(self, descriptor: int | None = None, path: Path | None = None, known: Recorded | None = None):
        self._descriptor = descriptor
        self._path = path
        self._size = os.fstat(descriptor).st_size if descriptor is not None else 0
        self._tools: dict[str, Sequence[Mapping[str, Any]]] = dict(known.tools) if known else {}
        self._secrets: set[str] = set()
        self.known = known or Recorded()
        self.run: RunIdentity | None = None

    def hide(self, secrets: Iterable[str]) -> None:
        """Write `***` for these from now on, wherever they stand."""
        self._secrets.update(secrets)

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line."""
        self.write(encoded(line))

    def write(self, data: bytes) -> bytes:
        """Write one line, as its bytes, which are given back without secrets.

        NotRecorded where that fails; the file is then as it was.
        """
        data = known_secrets.hidden_line(data, self._secrets) if self._secrets else data
        if self._descriptor is None:
            return data
        try:
            if os.write(self._descriptor, data + b"\n") <= len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            # A part of a line would spoil the one after it.
            os.ftruncate(self._descriptor, self._size)
            raise NotRecorded(
                f"'{self._path}' cannot be written: {(error.strerror or str(error)).lower()}"
            ) from error
        self._size += len(data) + 1
        return data

    def begin(self, run: RunIdentity) -> None:
        """Say which run this is. The first thing that is written."""
        self.run = run
        line = {"type": "run", "schema": SCHEMA, **run.as_json(), "at": wire.timestamp()}
        source = {"agent_sha256": run.agent_sha256} if run.agent_sha256 else {}
        self.append({**line, **source, "owner": run_owner.own()})

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """The digest of tools, which are written when they are first met."""
        text = json.dumps(tools, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in self._tools:
            self.append({"type": "tools", "sha256": digest, "tools": tools})
            self._tools[digest] = tools
        return digest


def encoded(value: Any) -> bytes:
    """As JSON, whatever an agent or an environment has given."""
    return bounded_json.dumps(value).encode("utf-8", "backslashreplace")


@contextmanager
def opened(path: Path | None, run: RunIdentity, repeat: int = 1, mode: Mode = "new") -> Iterator[Journal]:
    """The journal of a run. Conflict where the file has results that do not belong to it, or another run writes.

    What a file that is gone on with holds must be of `run`, and of the first `repeat` attempts at its task.
    """
    if path is None:
        journal = Journal()
        journal.begin(run)
        yield journal
        return
    if mode != "resume":
        path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if mode == "resume" else "ab+") as file:
        _lock(file.fileno(), path)
        if os.fstat(file.fileno()).st_size and mode == "new":
            raise Conflict(f"{str(path)!r} has results already; go on there with --resume, or name another file")
        known, size = Recorded(), 0
        file.seek(0)
        for number, line in _whole_lines(file):
            _take(known, path, number, line, lambda theirs, tried, at: _check(theirs, tried, run, repeat, at))
            size += len(line) + 1
        _check_source(known, path, run, mode)
        if not size and os.fstat(file.fileno()).st_size:
            # A torn line is taken away only behind lines that show that the file is ours.
            raise Conflict(f"{str(path)!r} is not a journal: its first line has no end; name another file")
        file.truncate(size)
        file.seek(size)
        journal = Journal(file.fileno(), path, known)
        journal.begin(run)
        yield journal


def read(path: Path) -> Recorded:
    """What a journal holds, also while it is written, and a file of results of the version before."""
    known = Recorded()
    with path.open("rb") as file:
        for number, line in _whole_lines(file):
            _take(known, path, number, line)
    return known


def results(path: Path) -> list[RolloutResult]:
    """The results in a file. InvalidRequest where there are none."""
    found = list(read(path).results.values())
    if not found:
        raise InvalidRequest(f"{str(path)!r} has no results")
    return found


def _whole_lines(file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, 1):
        if line.endswith(b"\n"):  # the last one may be torn
            yield number, line[:-1]


def _take(
    known: Recorded,
    path: Path,
    number: int,
    text: bytes,
    check: Callable[[RunIdentity, int, str], None] | None = None,
) -> None:
    """Add what a line says. Errors name the file and the line.

    `check` is of the run and the attempt that a line is of; without it, results must belong together.
    """
    where = f"{str(path)!r} line {number}"
    try:
        line = bounded_json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{where} is not JSON: {error}") from error
    kind = line.get("type", "result") if isinstance(line, dict) else "result"
    try:
        match kind:
            case "result":
                result = RolloutResult.read(line)
                if check:
                    check(result.run, result.number, where)
                else:
                    _check_together(known, result, where)
                if known.runs:
                    source = known.runs[-1].agent_sha256
                    result = replace(result, run=replace(result.run, agent_sha256=source))
                _ended(known, result)
            case "begin":
                head = read_head(line)
                tools = known.tools.get(head.tools, [])
                run = known.runs[-1] if known.runs else None
                known.trajectories[head.rollout] = Trajectory(head, tools, run=run, owner=known.owner)
            case "step" | "messages" | "retry" | "exchange" | "unrecorded":
                _happened(known, kind, line, text)
            case "tools":
                known.tools[str(line.get("sha256"))] = line["tools"]
            case "run":
                _check_schema(line)
                known.runs.append(RunIdentity.read(line))
                known.owner = str(line.get("owner") or "")
                if check:
                    check(known.runs[-1], 1, where)
            case _:
                raise InvalidRequest(f"field 'type' is {kind!r}, which this version does not know")
    except (InvalidRequest, KeyError, TypeError) as error:
        told = error.message if isinstance(error, InvalidRequest) else f"field {error} is missing or wrong"
        raise InvalidRequest(f"{where} is not a line of a journal: {told}") from error


def _check_schema(line: Mapping[str, Any]) -> None:
    name, _, version = str(line.get("schema")).partition("/")
    if name != SCHEMA.partition("/")[0] or version != SCHEMA.partition("/")[2]:
        raise InvalidRequest(f"field 'schema' is {line.get('schema')!r}, and this version reads {SCHEMA!r}")


def _ended(known: Recorded, result: RolloutResult) -> None:
    trajectory = known.trajectories.get(result.rollout)
    if trajectory:
        result = replace(result, trajectory=trajectory)
        trajectory.result = result
    known.results[result.key] = result


def _happened(known: Recorded, kind: str, line: Mapping[str, Any], text: bytes) -> None:
    trajectory = known.trajectories.get(str(line.get("rollout")))
    if trajectory is None:
        raise InvalidRequest(f"rollout {line.get('rollout')!r} has not begun")
    if kind == "step":
        read_step(line)
        trajectory.lines.append(text)
    elif kind == "exchange":
        trajectory.exchange_lines.append(text)
        trajectory.captured_tools = known.tools
    elif kind == "messages":
        trajectory.own_messages = list(line["messages"])
    elif kind == "unrecorded":
        trajectory.unrecorded.append(str(line["by"]))


def _check(theirs: RunIdentity, number: int, run: RunIdentity, repeat: int, where: str) -> None:
    if different := theirs.differs_from(run):
        name, old, new = different
        raise Conflict(
            f"{where} is of {name} {old!r}, and this is {new!r}; results of both do not belong together"
        )
    if number > repeat:
        raise Conflict(f"{where} is of attempt {number}; go on with --repeat {number} or more")


def _check_source(known: Recorded, path: Path, run: RunIdentity, mode: Mode) -> None:
    """Conflict, or a warning to who resumes, where other code of the agent has earned what is not played again."""
    found = {one.run.agent_sha256 for one in known.results.values() if one.is_judged}
    if not run.agent_sha256 or found <= {"", run.agent_sha256}:
        return
    what = f"{str(path)!r} has results of other code of the agent {run.agent!r}"
    if mode == "resume":
        logger.warning("%s: they are not played again, and count with those of this code", what)
        return
    raise Conflict(
        f"{what}; name another file or delete this one to play them again, or keep them with resume=True"
    )


def _check_together(known: Recorded, result: RolloutResult, where: str) -> None:
    first = next(iter(known.results.values()), None)
    if first:
        _check(result.run, result.number, first.run, result.number, where)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"another evaluation writes to {str(path)!r}; wait for it, or name another file") from None
