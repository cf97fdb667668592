"""The digest of an agent's source, by which a journal tells that the agent has changed since.

It is of the text of the function or class alone: code that this calls, and values that it keeps, are not seen.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .agents import Function


def digest(agent: object) -> str:
    """The sha256 of an agent's source; "" where that cannot be had, and for agents that come with aenv."""
    try:
        if not isinstance(agent, Function) and type(agent).__module__.startswith("aenv."):
            return ""
        for one in _written(agent.function if isinstance(agent, Function) else agent):
            with suppress(OSError, TypeError):  # a prompt, `python -c`, `exec` or C
                text = textwrap.dedent(inspect.getsource(one)).strip()
                text = _lambda(text) if getattr(one, "__name__", "") == "<lambda>" else text
                return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest() if text else ""
    except Exception:  # boundary: the agent's attributes may be anything, and its file may have changed
        return ""
    return ""


def _written(found: Any) -> Iterator[Any]:
    """What of an agent may have a source, the whole of it first."""
    while isinstance(found, partial):
        found = found.func
    found = inspect.unwrap(found)
    if inspect.isfunction(found) or inspect.isclass(found):
        yield found
    elif inspect.ismethod(found):
        owner = found.__self__
        yield owner if inspect.isclass(owner) else type(owner)
        yield found.__func__
    else:
        yield type(found)
        yield type(found).__call__ if callable(found) else type(found).play


def _lambda(text: str) -> str:
    """A lambda without the rest of its line, where that is whole and has no other one."""
    with suppress(SyntaxError):
        found = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Lambda)]
        if len(found) == 1:
            return ast.get_source_segment(text, found[0]) or ""
    return ""
