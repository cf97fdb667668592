"""The contract check: names, schemas, documentation, health, and the reserved functions, as they are offered.

Not here: what needs a task to be played (`validation.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import AEnvError, InvalidRequest
from .report import Finding
from .task_instances import WatchedEnvironment

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_TYPES = {"string", "integer", "number", "boolean", "null", "array", "object"}
_ANSWERS = re.compile(r"(gold|answer|solution|expected|evaluation_criteria|ground_truth)", re.IGNORECASE)
_DEEPEST = 30


@dataclass(frozen=True)
class OfferedFunctions:
    """What an environment offers, from an instance of it."""

    tools: list[dict[str, Any]]
    functions: dict[str, dict[str, Any]]
    rewards: list[dict[str, Any]]

    def has(self, function: str) -> bool:
        return function in self.functions


async def offer_of(env: WatchedEnvironment) -> OfferedFunctions:
    """Tools go by their short names."""
    listed = await env.list_functions()
    tools = [{**tool, "name": tool["name"].removeprefix(f"{env.env_name}/")} for tool in await env.list_tools()]
    return OfferedFunctions(tools, {one["name"]: one for one in listed["functions"]}, list(listed["reward"]))


def described(offer: OfferedFunctions, description: str) -> Iterator[Finding]:
    """Names, schemas and documentation."""
    if not description.strip():
        yield Finding("docs", "environment", "failed", "config.json has no description")
    for tool in offer.tools:
        name = str(tool["name"])
        yield _name("tool", name, _TOOL_NAME, "letters, digits, '_' and '-', at most 64: models take no others")
        yield _docs("tool", tool)
        wrong = list(_schema(tool.get("inputSchema"), "inputSchema"))
        wrong += _schema(tool["outputSchema"], "outputSchema") if "outputSchema" in tool else []
        if not wrong and tool["inputSchema"].get("type") != "object":
            wrong = ["inputSchema must be of the type 'object'"]
        yield Finding("schemas", f"tool {name}", "failed" if wrong else "ok", "; ".join(wrong))
    for kind, entries in (("function", list(offer.functions.values())), ("reward", offer.rewards)):
        for entry in entries:
            yield _name(kind, str(entry["name"]), _NAME, "letters, digits, '_', '.' and '-'")
            yield _docs(kind, entry)
            untyped = [name for name, one in entry.get("parameters", {}).items() if one.get("type") == "Any"]
            # A union has no single type, and is listed as Any too; an untyped parameter is legal Python.
            detail = f"any type: {', '.join(untyped)}" if untyped else ""
            yield Finding("schemas", f"{kind} {entry['name']}", "ok", detail)


def _name(kind: str, name: str, legal: re.Pattern[str], rule: str) -> Finding:
    fits = legal.match(name)
    return Finding("names", f"{kind} {name}", "ok" if fits else "failed", "" if fits else f"use {rule}")


def _docs(kind: str, entry: Mapping[str, Any]) -> Finding:
    told = str(entry.get("description") or "").strip()
    bad = not told or told == entry["name"]
    detail = "it has no description; write a docstring" if bad else ""
    return Finding("docs", f"{kind} {entry['name']}", "failed" if bad else "ok", detail)


def _schema(schema: Any, where: str) -> Iterator[str]:
    """What is wrong with a JSON schema, as far as those who read it must rely on it."""
    definitions = schema.get("$defs", {}) if isinstance(schema, Mapping) else {}
    yield from _part(schema, where, definitions if isinstance(definitions, Mapping) else {}, 0)
    for name, definition in definitions.items() if isinstance(definitions, Mapping) else ():
        yield from _part(definition, f"{where}.$defs.{name}", definitions, 1)


def _part(schema: Any, where: str, definitions: Mapping[str, Any], depth: int) -> Iterator[str]:
    if isinstance(schema, bool) and depth:
        return
    if not isinstance(schema, Mapping):
        yield f"{where} must be an object"
        return
    if depth > _DEEPEST:
        yield f"{where} is nested too deeply"
        return
    reference = schema.get("$ref")
    if reference is not None and str(reference).removeprefix("#/$defs/") not in definitions:
        yield f"{where} refers to {reference!r}, which is not there"
    named = schema.get("type", [])
    for kind in [named] if isinstance(named, str) else named:
        if kind not in _TYPES:
            yield f"{where} has the type {kind!r}, which JSON does not know"
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f"{where}.enum must be a list with something in it"
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in properties]
    if missing:
        yield f"{where} requires {', '.join(map(repr, missing))}, which it does not describe"
    for name, one in properties.items():
        yield from _part(one, f"{where}.{name}", definitions, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for index, one in enumerate(schema.get(key, ())):
            yield from _part(one, f"{where}.{key}[{index}]", definitions, depth + 1)
    if "items" in schema:
        yield from _part(schema["items"], f"{where}.items", definitions, depth + 1)


async def health(env: WatchedEnvironment) -> Finding:
    """Whether the environment says that it is well."""
    try:
        answer = await env.check_health()
    except AEnvError as error:
        return Finding("health", "environment", "failed", error.message)
    data = answer.get("data")
    status = str(data.get("status", "")) if isinstance(data, dict) else ""
    well = answer.get("success") is True and status.lower() not in ("error", "unhealthy", "failed")
    return Finding("health", "environment", "ok" if well else "failed", "" if well else f"it says {data}")


async def sealed(env: WatchedEnvironment, offer: OfferedFunctions) -> list[Finding]:
    """Whether gold and cheats keep quiet in an instance that was made without AENV_VALIDATION."""
    findings = []
    for name in ("play_gold", "task_form", "list_cheats"):
        if not offer.has(name):
            continue
        try:
            await env.call_function(name)
        except AEnvError:
            findings.append(Finding("sealed", name, "ok"))
        else:
            detail = "it answers in an instance that was made without AENV_VALIDATION=1"
            findings.append(Finding("sealed", name, "failed", detail))
    return findings


async def splits(env: WatchedEnvironment, offer: OfferedFunctions, known: set[str]) -> Finding:
    """Whether an unknown split is refused with the names of those that there are."""
    if "split" not in offer.functions["list_tasks"].get("parameters", {}):
        return Finding("tasks", "list_tasks", "ok", "it knows no splits")
    try:
        await env.call_function("list_tasks", {"split": "no-such-split"})
    except AEnvError as error:
        named = not known or any(split in error.message for split in known)
        detail = "" if named else f"the error of an unknown split names none of {', '.join(sorted(known))}"
        return Finding("tasks", "list_tasks", "ok" if named else "failed", detail)
    return Finding("tasks", "list_tasks", "failed", "an unknown split must be an error, and is none")


def task_told(id: str, told: Any) -> Finding:
    """Whether `get_task` says what a task's agent needs, and nothing that it must not know."""
    try:
        _check_told(id, told)
    except InvalidRequest as error:
        return Finding("tasks", id, "failed", error.message)
    return Finding("tasks", id, "ok")


def _check_told(id: str, told: Any) -> None:
    if not isinstance(told, dict):
        raise InvalidRequest("get_task must return an object")
    if told.get("id") != id:
        raise InvalidRequest(f"get_task says that its id is {told.get('id')!r}")
    if not isinstance(told.get("instruction"), str) or not told["instruction"].strip():
        raise InvalidRequest("get_task.instruction must be a text")
    if not isinstance(told.get("system", ""), str):
        raise InvalidRequest("get_task.system must be a text")
    steps = told.get("max_steps", 1)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise InvalidRequest("get_task.max_steps must be a whole number above 0")
    leaks = [key for key in told if _ANSWERS.search(key)]
    if leaks:
        raise InvalidRequest(f"get_task gives away {', '.join(map(repr, leaks))}")


def exceptions(told: Any) -> dict[str, dict[str, str]]:
    """The answer of `known_exceptions`; InvalidRequest where it has another form."""
    if not isinstance(told, dict) or set(told) - {"gold", "empty"}:
        raise InvalidRequest("known_exceptions must return an object with 'gold' and 'empty'")
    found: dict[str, dict[str, str]] = {}
    for kind in ("gold", "empty"):
        declared = told.get(kind, {})
        if not isinstance(declared, dict) or not all(isinstance(w, str) and w.strip() for w in declared.values()):
            raise InvalidRequest(f"known_exceptions.{kind} must be an object of task ids, each with a reason")
        found[kind] = declared
    return found
