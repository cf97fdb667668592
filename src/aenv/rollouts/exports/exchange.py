"""Files of trajectories: found out by their content, and written in any of the formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from ...base.errors import Conflict, Forbidden, InvalidRequest
from .. import bounded_json, journal
from ..trajectory import SCHEMA, Trajectory
from . import atif, chats, parquet

Format = Literal["journal", "chat", "sft", "preferences", "atif", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)


def load(path: Path) -> list[Trajectory]:
    """The trajectories in a journal, a file of chats or of preferences, of ATIF, or of parquet.

    InvalidRequest names the line and the field that are wrong.
    """
    with path.open("rb") as file:
        begin = file.read(4)
    if begin == b"PAR1":
        return list(_rows(path, parquet.read(path), parquet.full))
    text = path.read_bytes()
    first = _first(text)
    if isinstance(first, dict) and "schema_version" in first:
        lines = [first] if _is_whole(text) else [line for _, line in _lines(path, text)]
        return [_named(path, number, lambda one=one: atif.read(one)) for number, one in enumerate(lines, 1)]
    if isinstance(first, dict) and not {"messages", "chosen"}.isdisjoint(first) and "type" not in first:
        return list(_rows(path, [line for _, line in _lines(path, text)]))
    found = list(journal.read(path).trajectories.values())
    if not found:
        raise InvalidRequest(f"{str(path)!r} has no trajectories")
    return found


def save(
    path: Path,
    trajectories: Sequence[Trajectory],
    format: Format,
    *,
    min_reward: float | None = None,
    force: bool = False,
) -> int:
    """Write a new file; how many rows it has. Forbidden for environments that are for evaluation alone.

    `min_reward` is for conversations to imitate (1.0), and the difference of a pair (0.0).
    """
    evaluated = sorted({one.identity.environment for one in trajectories if one.identity.eval_only})
    if evaluated and not force and format != "journal":
        raise Forbidden(
            f"{', '.join(evaluated)} is for evaluation alone (evalOnly), so its rollouts must not become training "
            "data; --force writes them nevertheless"
        )
    check_new(path)
    match format:
        case "parquet":
            return parquet.write(path, (chats.chat(one) for one in trajectories))
        case "chat":
            rows: Iterable[Any] = (chats.chat(one) for one in trajectories)
        case "sft":
            rows = chats.sft(trajectories, 1.0 if min_reward is None else min_reward)
        case "preferences":
            rows = chats.preferences(trajectories, min_reward or 0.0)
        case "atif":
            rows = [atif.document(one) for one in trajectories]
            if path.suffix == ".json" and len(rows) == 1:
                path.write_text(json.dumps(rows[0], ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
                return 1
        case "journal":
            rows = _journal(trajectories)
    count = 0
    with path.open("wb") as file:
        for row in rows:
            file.write(journal.encoded(row) + b"\n")
            count += 1
    return count


def check_new(path: Path) -> None:
    """Conflict where there is a file already, which is not overwritten."""
    if path.exists():
        raise Conflict(f"{str(path)!r} exists; name another file")


def _journal(trajectories: Iterable[Trajectory]) -> Iterator[dict[str, Any]]:
    for one in trajectories:
        yield {"type": "run", "schema": SCHEMA, **one.identity.as_json()}
        digest = one.head.tools or f"of-{one.head.rollout}"
        yield {"type": "tools", "sha256": digest, "tools": one.tools}
        yield {**one.head.as_json(), "tools": digest}
        yield from (json.loads(line) for line in one.lines)
        yield from _captured(one)
        yield from ({"type": "unrecorded", "rollout": one.head.rollout, "by": by} for by in one.unrecorded)
        if one.own_messages is not None:
            yield {"type": "messages", "rollout": one.head.rollout, "messages": one.own_messages}
        if one.result:
            yield one.result.as_json()


def _captured(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """The exchanges, each with the tools that it refers to before it."""
    written: set[str] = set()
    for line in map(json.loads, trajectory.exchange_lines):
        digest = line["request"].get("tools")
        if isinstance(digest, str) and digest not in written:
            written.add(digest)
            yield {"type": "tools", "sha256": digest, "tools": trajectory.captured_tools.get(digest, [])}
        yield line


def _rows(path: Path, rows: Iterable[Any], full: Callable[[Any], Any] = lambda row: row) -> Iterator[Trajectory]:
    for number, row in enumerate(rows, 1):
        yield from _named(path, number, lambda row=row, number=number: chats.read(full(row), number))


def _named(path: Path, number: int, act: Any) -> Any:
    try:
        return act()
    except InvalidRequest as error:
        raise InvalidRequest(f"{str(path)!r} line {number}: {error.message}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"{str(path)!r} line {number} is not as its format has it: {error!r}") from error


def _lines(path: Path, text: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = bounded_json.loads(line)
        except ValueError as error:
            raise InvalidRequest(f"{str(path)!r} line {number} is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise InvalidRequest(f"{str(path)!r} line {number} must be an object")
        yield number, found


def _first(text: bytes) -> Any:
    """The first object: of the first line, or the whole file."""
    for part in (text.split(b"\n", 1)[0], text):
        try:
            return bounded_json.loads(part)
        except ValueError:
            continue
    return None


def _is_whole(text: bytes) -> bool:
    try:
        bounded_json.loads(text)
    except ValueError:
        return False
    return True
