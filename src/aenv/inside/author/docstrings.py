"""Google-style docstrings: the text for the model, and one description per parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_ARGUMENTS = ("args:", "arguments:", "parameters:", "params:")
_SECTIONS = (
    *_ARGUMENTS,
    *("returns:", "return:", "yields:", "raises:", "example:", "examples:", "note:", "notes:"),
)
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def parse(function: Callable[..., Any]) -> tuple[str | None, dict[str, str]]:
    """The docstring without its `Args:` section, and what that section says of each parameter.

    Tolerates lost indentation: a line "name: text" below `Args:` is a parameter wherever it starts.
    """
    lines = (inspect.getdoc(function) or "").splitlines()
    text: list[str] = []
    parameters: dict[str, str] = {}
    in_arguments = False
    current = ""
    known = inspect.signature(function).parameters
    for line in lines:
        word = line.strip().lower()
        if word in _SECTIONS:
            in_arguments = word in _ARGUMENTS
            current = ""
        if not in_arguments:
            text.append(line)
            continue
        match = _PARAMETER.match(line.strip())
        if match and match[1] in known:
            current = match[1]
            parameters[current] = match[2].strip()
        elif current and line.strip():
            parameters[current] = f"{parameters[current]} {line.strip()}".strip()
    return "\n".join(text).strip() or None, parameters
