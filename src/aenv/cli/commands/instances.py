"""`aenv instances`: the same as `aenv instance list`."""

from __future__ import annotations

from ..help_pages import DocumentedCommand
from .instance import list_

command = DocumentedCommand(
    "instances",
    params=list_.params,
    callback=list_.callback,
    help=list_.help,
    examples=("aenv instances", "aenv instances --name my-env --json"),
)
