"""One log format for every aenv process; instance and request ids come from context variables.

Libraries never configure logging: only the programs call `configure`, and a user's code calls
`setup_logging`. Never logged at any level: headers, tokens, values of variables, tool arguments.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
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


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the log of an aenv program to `stream` (standard error unless told)."""
    handler = logging.StreamHandler(stream or sys.stderr)
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
