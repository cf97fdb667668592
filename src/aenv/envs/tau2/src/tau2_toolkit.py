"""Toolkits: the tools of one side (agent or user) over one database, how they are called, and what they answer.

Not here: which side is asked, and what happens after a call (`tau2_world.py`); JSON schemas (`tau2_schema.py`).
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, Literal, TypeVar

from tau2_schema import described

Kind = Literal["read", "write", "generic"]
Method = TypeVar("Method", bound=Callable[..., Any])

_MARK = "tau2_kind"


def tool(kind: Kind) -> Callable[[Method], Method]:
    """Make a method a tool. Its docstring (first paragraph, `Args:`) describes it; annotations give the schema."""

    def marked(method: Method) -> Method:
        setattr(method, _MARK, kind)
        return method

    return marked


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told about a tool. `parameters` is a JSON schema."""

    name: str
    kind: Kind
    description: str
    parameters: dict[str, Any]

    def openai(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class Toolkit:
    """Methods marked by `tool` are tools; other public methods are reached from tasks only."""

    title: ClassVar[str]
    """How messages about wrong arguments name this toolkit, e.g. "TelecomTools"."""

    def __init__(self, db: Any) -> None:
        self.db = db

    @classmethod
    def kinds(cls) -> dict[str, Kind]:
        """Each tool's kind, in the order of definition: those of bases first, from left to right."""
        return {name: getattr(method, _MARK) for name, method in _members(cls) if hasattr(method, _MARK)}

    @classmethod
    def specs(cls) -> dict[str, ToolSpec]:
        """As `tools`, without a database."""
        kinds = cls.kinds()
        return {name: ToolSpec(name, kinds[name], *described(getattr(cls, name))) for name in kinds}

    def tools(self) -> dict[str, ToolSpec]:
        """All tools, in the order of definition."""
        return self.specs()

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool or a public method. Whatever it raises comes through."""
        method = None if name.startswith("_") or hasattr(Toolkit, name) else getattr(type(self), name, None)
        if not inspect.isfunction(method):
            raise ValueError(f"Tool '{name}' not found.")
        self._check(method, arguments)
        return method(self, **arguments)

    def _check(self, method: Callable[..., Any], arguments: dict[str, Any]) -> None:
        # By hand, since the texts of Python's own errors depend on its version and on where a method was defined.
        parameters = list(inspect.signature(method).parameters.values())[1:]
        known = {parameter.name for parameter in parameters}
        label = f"{self.title}.{method.__name__}()"
        for key in arguments:
            if key not in known:
                raise TypeError(f"{label} got an unexpected keyword argument '{key}'")
        required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
        missing = [f"'{name}'" for name in required if name not in arguments]
        if missing:
            word = "argument" if len(missing) == 1 else "arguments"
            raise TypeError(f"{label} missing {len(missing)} required positional {word}: {_enumerated(missing)}")


def text_of(value: Any) -> str:
    """The content of a tool's answer: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(_processed(value), default=str)


def database_hash(db: Any) -> str:
    """The sha256 of a database's dump as JSON with sorted keys."""
    digest = hashlib.sha256()
    for chunk in canonical(db):
        digest.update(chunk)
    return digest.hexdigest()


def canonical(db: Any) -> Iterator[bytes]:
    """The text that is hashed. A database that holds it in pieces (`canonical`) gives these."""
    pieces = getattr(db, "canonical", None)
    if pieces is not None:
        yield from pieces()
    else:
        yield canonical_text(db.dump()).encode()


def canonical_text(value: Any) -> str:
    """One value in the form that is hashed."""
    return json.dumps(value, sort_keys=True, default=str)


def _processed(value: Any) -> Any:
    """Records (what has `dump`) stay JSON; in what a tool itself puts together, numbers become text."""
    if hasattr(value, "dump"):
        return value.dump()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_processed(item) for item in value]
    if isinstance(value, dict):
        return {key: _processed(item) for key, item in value.items()}
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    raise ValueError(f"Unsupported type: {type(value)}")


def _enumerated(names: list[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return ", ".join(names[:-1]) + f", and {names[-1]}"


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for base in cls.__bases__:
        yield from _members(base)
    yield from vars(cls).items()
