"""A world without a model: rules of the scenario file, played the same way every time.

A rule has a condition (`when`), changes (`set`, `add`, `append`: path to value) and words (`say`). A condition is
one of `is`, `at_least`, `at_most`, `contains` with a path (or an argument) and a value, or `all`, `any`, `not` of
conditions. A value is plain, or `{"argument": name}`, or `{"state": path}`. `{name}` in a path or in words stands
for an argument, and `{state:path}` in words for a part of the state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simulation_schema import Wrong, read, write

_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda here, value: bool(here == value),
    "at_least": lambda here, value: bool(here >= value),
    "at_most": lambda here, value: bool(here <= value),
    "contains": lambda here, value: value in here,
}
_JOINED = ("all", "any", "not")
_CHANGES = ("set", "add", "append")
_PLACEHOLDER = re.compile(r"\{(state:)?([A-Za-z0-9_.]+)\}")


def check_condition(condition: Any, where: str) -> None:
    """Wrong, naming the place, unless it is a condition."""
    if not isinstance(condition, dict) or len(condition) != 1:
        raise Wrong(f"{where} must be an object with one of {', '.join((*_COMPARED, *_JOINED))}")
    ((kind, value),) = condition.items()
    if kind in _COMPARED:
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str | dict):
            raise Wrong(f"{where}.{kind} must be a path, or an argument, and a value")
    elif kind == "not":
        check_condition(value, f"{where}.not")
    elif kind in _JOINED:
        if not isinstance(value, list):
            raise Wrong(f"{where}.{kind} must be a list of conditions")
        for index, one in enumerate(value):
            check_condition(one, f"{where}.{kind}[{index}]")
    else:
        raise Wrong(f"{where} has {kind!r}, and must have one of {', '.join((*_COMPARED, *_JOINED))}")


def check_rule(rule: dict[str, Any], where: str) -> list[str]:
    """The paths that a rule changes. Wrong, naming the place, unless it is a rule."""
    unknown = sorted(set(rule) - {"when", "say", *_CHANGES})
    if unknown or not isinstance(rule.get("say"), str):
        raise Wrong(f"{where} must have 'say', and may have 'when', {', '.join(map(repr, _CHANGES))}")
    if "when" in rule:
        check_condition(rule["when"], f"{where}.when")
    changes = [rule.get(kind, {}) for kind in _CHANGES]
    if not all(isinstance(one, dict) for one in changes):
        raise Wrong(f"{where}: {', '.join(_CHANGES)} must each be an object of paths")
    return [path for one in changes for path in one]


def holds(condition: Mapping[str, Any], state: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether a condition is true now."""
    ((kind, value),) = condition.items()
    if kind == "not":
        return not holds(value, state, arguments)
    if kind == "all":
        return all(holds(one, state, arguments) for one in value)
    if kind == "any":
        return any(holds(one, state, arguments) for one in value)
    place = {"state": value[0]} if isinstance(value[0], str) else value[0]
    here, other = _value(place, state, arguments), _value(value[1], state, arguments)
    try:
        return _COMPARED[kind](here, other)
    except TypeError:
        raise Wrong(f"{value[0]!r} cannot be compared with {other!r}") from None


def play(rules: list[dict[str, Any]], state: Any, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What happens: words, and the new values by their paths; `state` itself stays as it is."""
    for rule in rules:
        if "when" not in rule or holds(rule["when"], state, arguments):
            changes = _changes(rule, state, arguments)
            return _said(rule["say"], state, changes, arguments), changes
    return "Nothing happens.", {}


def _changes(rule: dict[str, Any], state: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their paths. All of a rule is worked out from the state before it."""
    made: dict[str, Any] = {}
    for path, value in rule.get("set", {}).items():
        made[_filled(path, arguments)] = _value(value, state, arguments)
    for path, value in rule.get("add", {}).items():
        place = _filled(path, arguments)
        made[place] = made.get(place, read(state, place)) + _value(value, state, arguments)
    for path, value in rule.get("append", {}).items():
        place = _filled(path, arguments)
        made[place] = [*made.get(place, read(state, place)), _value(value, state, arguments)]
    return made


def _value(value: Any, state: Any, arguments: Mapping[str, Any]) -> Any:
    match value:
        case {"argument": str(name)} if len(value) == 1:
            if name not in arguments:
                raise Wrong(f"there is no argument {name!r}")
            return arguments[name]
        case {"state": str(path)} if len(value) == 1:
            return read(state, _filled(path, arguments))
    return value


def _filled(path: str, arguments: Mapping[str, Any]) -> str:
    """A path with its placeholders replaced. An argument is one step of it: it cannot lead elsewhere by a dot."""

    def replaced(match: re.Match[str]) -> str:
        value = str(arguments.get(match[2], ""))
        if match[1] or not value or "." in value:
            raise Wrong(f"{path!r} cannot be filled in with {value!r}")
        return value

    return _PLACEHOLDER.sub(replaced, path)


def _said(text: str, state: Any, changes: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """The words, about the state as it is afterwards."""

    def replaced(match: re.Match[str]) -> str:
        if not match[1]:
            return str(arguments.get(match[2], match[0]))
        return str(changes[match[2]] if match[2] in changes else read(state, match[2]))

    return _PLACEHOLDER.sub(replaced, text)


def changed(state: Any, changes: Mapping[str, Any]) -> None:
    """Write values to their paths."""
    for path, value in changes.items():
        write(state, path, value)
