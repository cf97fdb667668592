"""Parquet: rows of `chats.chat` as a table that `datasets` loads. Needs pyarrow (the extra `parquet`)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...base.errors import InvalidRequest
from .chats import ChatRow

_TEXTS = ("rollout", "task", "outcome", "environment", "digest", "agent", "model", "error")


def write(path: Path, rows: Iterable[ChatRow]) -> int:
    """One row a trajectory; how many there are. Tools, parts, variables and tokens are columns of JSON texts."""
    arrow, parquet = _pyarrow()
    text, number = arrow.string(), arrow.int64()
    function = arrow.struct([("name", text), ("arguments", text)])
    call = arrow.struct([("id", text), ("type", text), ("function", function)])
    message = arrow.struct(
        [("role", text), ("content", text), ("tool_calls", arrow.list_(call)), ("tool_call_id", text)]
    )
    schema = arrow.schema(
        [
            ("messages", arrow.list_(message)),
            ("loss_mask", arrow.list_(arrow.int8())),
            ("reward", arrow.float64()),
            *((name, number) for name in ("attempt", "attempts", "seed")),
            *((name, text) for name in (*_TEXTS, "tools", "parts", "variables", "tokens")),
        ]
    )
    table = [_flat(row) for row in rows]
    try:
        made = arrow.Table.from_pylist(table, schema=schema)
    except arrow.ArrowException as error:
        raise InvalidRequest(f"a column of the table has values of another type: {error}") from error
    parquet.write_table(made, path)
    return len(table)


def read(path: Path) -> list[ChatRow]:
    """The rows; `full` makes of each what `chats.read` takes. InvalidRequest for a file that cannot be read."""
    arrow, parquet = _pyarrow()
    try:
        rows: list[ChatRow] = parquet.read_table(path).to_pylist()
    except (arrow.ArrowException, OSError) as error:
        raise InvalidRequest(f"{str(path)!r} cannot be read as parquet: {error}") from error
    return rows


def _flat(row: ChatRow) -> ChatRow:
    flat = {name: row.get(name) for name in ("loss_mask", "reward", "attempt", "attempts", "seed", *_TEXTS)}
    flat["messages"] = [_message(one) for one in row["messages"]]
    for name in ("tools", "parts", "variables", "tokens"):
        flat[name] = json.dumps(row[name], ensure_ascii=False) if row.get(name) else None
    return flat


def _message(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    as_text = content if isinstance(content, str) or content is None else json.dumps(content, ensure_ascii=False)
    calls = [
        {"id": call.get("id"), "type": "function", "function": dict(call.get("function") or {})}
        for call in message.get("tool_calls") or []
    ]
    return {**message, "content": as_text, "tool_calls": calls or None}


def full(row: ChatRow) -> ChatRow:
    """A row without what a table adds: columns that are empty here, and JSON within texts."""
    found = {name: value for name, value in row.items() if value is not None}
    for name in ("tools", "parts", "variables", "tokens"):
        if isinstance(found.get(name), str):
            found[name] = json.loads(found[name])
    for name in ("messages", "prompt", "chosen", "rejected"):
        if isinstance(found.get(name), list):
            found[name] = [_without_empty(one) for one in found[name]]
    return found


def _without_empty(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if value is not None or name == "content"}


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidRequest("parquet needs pyarrow: pip install 'pyarrow>=16'") from error
    return pyarrow, pyarrow.parquet
