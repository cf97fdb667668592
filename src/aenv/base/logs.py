"""One log format for every aenv process; instance and request ids come from context variables.

Libraries never configure logging: only the programs call `configure`, and a user's code calls
`setup_logging`. Never logged at any level: headers, tokens, values of variables, tool arguments.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

instance_id: ContextVar[str | None] = ContextVar("aenv_instance_id", default=None)
request_id: ContextVar[str | None] = ContextVar("aenv_request_id", default=None)

FORMAT = "%(asctime)s.%(msecs)03d %(name)s %(levelname)s: %(ids)s%(message)s"
DATE_FORMAT = "%Y%m%d-%H:%M:%S"


class _Ids(logging.Filter):
    """Adds `ids` to a record: "[ENV:<instance>] " when the line belongs to an instance."""

    def filter(self, record: logging.LogRecord) -> bool:
        instance, request = instance_id.get(), request_id.get()
        record.ids = (f"[ENV:{instance}] " if instance else "") + (f"[{request}] " if request else "")
        return True


class _Json(logging.Formatter):
    """A line of JSON for each event."""

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
        return json.dumps({name: value for name, value in line.items() if value is not None})


def configure(level: str = "INFO", stream: TextIO | None = None, *, as_json: bool = False) -> None:
    """Send the log of an aenv program to `stream` (standard error unless told)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    if as_json:
        handler.setFormatter(_Json())
    setup_logging(handler, logging.getLevelNamesMapping()[level.upper()])


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
