"""One log format for every aenv process; instance and request ids come from context variables.

Libraries never configure logging: only the programs call `configure`, and a user's code calls
`setup_logging`. Never logged at any level: headers, tokens, values of variables, tool arguments. Programs cut
the ids of instances: more people read a log than may use what it tells of.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from .masks import NONE, Masks

instance_id: ContextVar[str | None] = ContextVar("aenv_instance_id", default=None)
request_id: ContextVar[str | None] = ContextVar("aenv_request_id", default=None)

FORMAT = "%(asctime)s.%(msecs)03d %(name)s %(levelname)s: %(ids)s%(message)s"
DATE_FORMAT = "%Y%m%d-%H:%M:%S"
_OLD_FILES = 5

masks: Masks = NONE
"""What hides the secrets of an instance in the log of its runtime."""

# Enough to tell instances apart, and to find one in a list; too little to open it.
_ID = re.compile(r"(?<![A-Za-z0-9-])((?:[a-z0-9]+-)+[a-z0-9]{6})[a-z0-9]{14,}(?![A-Za-z0-9-])")


def _cut(match: re.Match[str]) -> str:
    return f"{match[1]}…"


class _Ids(logging.Filter):
    """Adds `ids` to a record: "[ENV:<instance>] " when the line belongs to an instance."""

    def filter(self, record: logging.LogRecord) -> bool:
        instance, request = instance_id.get(), request_id.get()
        record.ids = (f"[ENV:{instance}] " if instance else "") + (f"[{request}] " if request else "")
        return True


class _Text(logging.Formatter):
    """A line for people, in which ids are cut."""

    _second, _spelled = -1, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """As it is, once for each second: it takes as long as all the rest of a line."""
        second = int(record.created)
        if second != self._second:
            self._second, self._spelled = second, super().formatTime(record, datefmt)
        return self._spelled

    def format(self, record: logging.LogRecord) -> str:
        return masks.text(_ID.sub(_cut, super().format(record)))


class _Json(logging.Formatter):
    """A line of JSON for each event, in which ids are cut."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "instance": instance_id.get(),
            "trace": request_id.get(),
            "error": self.formatException(record.exc_info) if record.exc_info else None,
        }
        shown = {name: masks.text(_ID.sub(_cut, value)) for name, value in line.items() if value is not None}
        return json.dumps(shown, ensure_ascii=False)


def configure(
    level: str = "INFO",
    stream: TextIO | None = None,
    *,
    as_json: bool = False,
    file: Path | None = None,
    file_bytes: int = 64 << 20,
) -> None:
    """Send the log of an aenv program to `stream` (standard error unless told), or to a `file` that rotates.

    A file of `file_bytes` becomes `<file>.1`, and five of these are kept. OSError when it cannot be written.
    """
    handler = _rotating(file, file_bytes) if file else logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text(FORMAT, DATE_FORMAT))
    setup_logging(handler, logging.getLevelNamesMapping()[level.upper()])


def _rotating(file: Path, file_bytes: int) -> logging.Handler:
    from logging.handlers import RotatingFileHandler  # it imports sockets and queues, which few programs need

    file.parent.mkdir(parents=True, exist_ok=True)
    return RotatingFileHandler(file, maxBytes=file_bytes, backupCount=_OLD_FILES, encoding="utf-8")


def setup_logging(handler: logging.Handler | None = None, level: int = logging.DEBUG) -> None:
    """Send everything below the logger "aenv" to `handler`; with None, say nothing at all."""
    root = logging.getLogger("aenv")
    for old in list(root.handlers):
        root.removeHandler(old)
    if handler is None:
        root.addHandler(logging.NullHandler())
        root.propagate = False
        return
    handler.addFilter(_Ids())
    if handler.formatter is None:
        handler.setFormatter(logging.Formatter(FORMAT, DATE_FORMAT))
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False


def get_logger(name: str | None = None, type_: str | None = None) -> logging.Logger:
    """A logger below "aenv". `type_` is part of the published signature and has no meaning."""
    if not name or name == "aenv":
        return logging.getLogger("aenv")
    return logging.getLogger(name if name.startswith("aenv.") else f"aenv.{name}")
