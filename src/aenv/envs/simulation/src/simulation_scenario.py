"""Scenario files: a world's description, rules, state and actions, and the check that gives the reward.

Not here: how an action changes the state, by a script (`simulation_script.py`) or a model (`simulation_model.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from simulation_schema import Wrong, check, check_schema, is_below, read
from simulation_script import check_condition, check_rule, holds

from aenv import ToolError

_MOST_BYTES = 1 << 20


class Parameter(BaseModel):
    """An argument of an action."""

    model_config = {"extra": "forbid"}

    type: Literal["string", "integer", "number", "boolean"]
    description: str = ""
    enum: list[str] | None = None
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = Field(default=200, alias="maxLength")

    def schema_of(self) -> dict[str, Any]:
        """As the check of values wants it."""
        bounds = {"minimum": self.minimum, "maximum": self.maximum} if self.type in ("integer", "number") else {}
        texts = {"enum": self.enum, "maxLength": self.max_length} if self.type == "string" else {}
        return {
            "type": self.type,
            **{name: value for name, value in {**bounds, **texts}.items() if value is not None},
        }

    def told(self) -> dict[str, Any]:
        """As the agent sees it."""
        return {**self.schema_of(), **({"description": self.description} if self.description else {})}


class Action(BaseModel):
    """Something that the agent can do."""

    model_config = {"extra": "forbid"}

    description: str
    parameters: dict[str, Parameter] = {}
    may_change: list[str] = []
    """Paths of the state. Whatever plays the world, nothing else changes by this action."""
    script: list[dict[str, Any]] = []
    """Rules for a world without a model; the first whose condition holds is played."""


class Scenario(BaseModel):
    """A scenario file."""

    model_config = {"extra": "forbid"}

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    title: str
    world: str
    rules: list[str] = []
    instruction: str
    opening: str
    schema_: dict[str, Any] = Field(alias="schema")
    state: dict[str, Any]
    visible: list[str] = []
    """Paths of the state that the agent sees whenever it looks."""
    actions: dict[str, Action] = Field(min_length=1)
    goal: dict[str, Any]
    max_steps: int = Field(default=30, ge=1, le=1000)
    gold: list[dict[str, Any]] = []

    @property
    def is_scripted(self) -> bool:
        return all(action.script for action in self.actions.values())

    def arguments(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments of an action, checked. ToolError with what there is."""
        action = self.actions.get(name)
        if action is None:
            raise ToolError(f"no action {name!r}; there are {', '.join(self.actions)}")
        unknown, missing = sorted(set(given) - set(action.parameters)), sorted(set(action.parameters) - set(given))
        if unknown or missing:
            takes = ", ".join(action.parameters) or "no arguments"
            raise ToolError(f"action {name!r} takes {takes}; given: {', '.join(sorted(given)) or 'none'}")
        try:
            for parameter, value in given.items():
                check(action.parameters[parameter].schema_of(), value, parameter)
        except Wrong as error:
            raise ToolError(f"action {name!r}: {error}") from None
        return given


def shipped() -> dict[str, Path]:
    """The scenarios that come with the environment, by name."""
    folder = Path(__file__).resolve().parent.parent / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def find(name: str, folders: list[Path]) -> Path:
    """The file of a shipped scenario, or one in these folders."""
    known = shipped()
    if name in known:
        return known[name]
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            return path
    raise ToolError(
        f"SIMULATION_SCENARIO is {name!r}: neither a shipped scenario ({', '.join(known)}) nor a file "
        f"of that name in {' or '.join(map(str, folders))}"
    )


def load(path: Path) -> Scenario:
    """A scenario that is sound. ToolError names the field that is not."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ToolError(f"scenario {path.name!r} is larger than {_MOST_BYTES >> 20} MiB")
        scenario = Scenario.model_validate(json.loads(data))
        _check(scenario)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ToolError(f"scenario {path.name!r}: {place}: {first['msg']}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ToolError(f"scenario {path.name!r}: {error}") from None
    return scenario


def _check(scenario: Scenario) -> None:
    check_schema(scenario.schema_, "schema")
    if scenario.schema_["type"] != "object":
        raise Wrong("schema.type must be object")
    check(scenario.schema_, scenario.state, "state")
    for path in scenario.visible:
        read(scenario.state, path)
    check_condition(scenario.goal, "goal")
    if holds(scenario.goal, scenario.state, {}):
        raise Wrong("goal holds already in the beginning: there would be nothing to do")
    for name, action in scenario.actions.items():
        for path in action.may_change:
            read(scenario.state, path)
        for index, rule in enumerate(action.script):
            where = f"actions.{name}.script[{index}]"
            for changed in check_rule(rule, where):
                if "{" not in changed and not is_below(changed, action.may_change):
                    raise Wrong(f"{where} changes {changed!r}, which may_change does not name")
    for index, step in enumerate(scenario.gold):
        if set(step) - {"action", "arguments"} or step.get("action") not in scenario.actions:
            raise Wrong(f"gold[{index}] must be an action and its arguments")
