"""Templates: tasks with parameters, drawn from a seed. A file of JSON objects, one a line.

    {"id": "boxes", "parameters": {"a": {"range": [2, 9]}, "name": ["Ada", "Bo"], "total": "a * 12"},
     "where": ["total > 20"], "task": {"text": "{name} has {a} dozen kites. How many?", "steps": ["{a} * 12"]}}

`{…}` in any text is an expression over the parameters (`base/expressions.py`); a brace itself is written twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from ...base import expressions
from ...base.errors import InvalidRequest
from ...base.expressions import BadExpression, Value
from .. import bounded_json
from ..task import FIELDS, Task
from .proposals import BadProposal, GoldCall, Proposal, TaskForm, of_form, of_variables
from .schema_checks import misfit

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_OWN = ("parameters", "where", "task", "gold")
_KNOWN = (*FIELDS, *_OWN)
_DRAWS = 50  # of parameters, until the conditions hold


@dataclass(frozen=True)
class Template:
    """One line of a file of templates."""

    id: str
    line: str
    """The file and the line, for errors."""
    parameters: Mapping[str, Any]
    conditions: Sequence[str]
    fields: Mapping[str, Any]
    """Those of a task file, with places to fill."""
    content: Mapping[str, Any] | None
    """In the environment's own form, with places to fill."""
    gold: Sequence[Any]

    def draw(self, random: Random) -> tuple[dict[str, Value], bool]:
        """Values for the parameters, and whether all conditions hold. InvalidRequest names a wrong field."""
        values: dict[str, Value] = {}
        for name, parameter in self.parameters.items():
            field = f"parameters.{name}"
            if not name.isidentifier():
                raise self.wrong(field, "the name of a parameter is a word of letters, digits and _")
            values[name] = self._drawn(field, parameter, values, random)
        held = [self._evaluated(f"where[{n}]", one, values) for n, one in enumerate(self.conditions)]
        if (number := next((n for n, one in enumerate(held) if not isinstance(one, bool)), None)) is not None:
            raise self.wrong(f"where[{number}]", "it must be a comparison, such as 'a > b'")
        return values, all(held)

    def proposal(self, form: TaskForm | None, values: Mapping[str, Value], draw: int) -> Proposal:
        """The task for these values. InvalidRequest names the field that is wrong."""
        calls = self.filled("gold", list(self.gold), values)
        gold = tuple(GoldCall.read(call, f"{self.line}: field 'gold[{n}]'") for n, call in enumerate(calls))
        if self.content is None:
            filled = {name: self.filled(name, value, values) for name, value in self.fields.items()}
            return of_variables(Task.read(filled, self.line), "template", self.id, draw, gold)
        if form is None:
            raise self.wrong("task", "the environment has no function 'task_form'; give 'variables' instead")
        content = self.filled("task", self.content, values)
        if misfitting := misfit(form.schema, content, "task"):
            raise InvalidRequest(f"{self.line}: field {misfitting}")
        return replace(of_form(form, content, "template", self.id, draw), gold=gold)

    def filled(self, field: str, value: Any, values: Mapping[str, Value]) -> Any:
        """The value with every `{expression}` in its texts replaced."""
        if isinstance(value, dict):
            return {name: self.filled(f"{field}.{name}", one, values) for name, one in value.items()}
        if isinstance(value, list):
            return [self.filled(f"{field}[{n}]", one, values) for n, one in enumerate(value)]
        if not isinstance(value, str):
            return value

        def fill(found: re.Match[str]) -> str:
            if found[0] in ("{{", "}}"):
                return found[0][0]
            if found[1] is None:
                raise self.wrong(field, f"a single {found[0]!r}; write it twice to mean the character")
            return expressions.spelled(self._evaluated(field, found[1], values))

        return _PLACE.sub(fill, value)

    def wrong(self, field: str, why: str) -> InvalidRequest:
        return InvalidRequest(f"{self.line}: field {field!r}: {why}")

    def _evaluated(self, field: str, text: str, values: Mapping[str, Value]) -> Value:
        try:
            return expressions.evaluate(text, values)
        except BadExpression as error:
            raise self.wrong(field, str(error)) from None

    def _drawn(self, field: str, parameter: Any, values: Mapping[str, Value], random: Random) -> Value:
        match parameter:
            case {"range": [int() as low, int() as high, *step]} if len(parameter) == 1 and low <= high:
                if step and not (len(step) == 1 and isinstance(step[0], int) and step[0] > 0):
                    raise self.wrong(field, "the third number of 'range' is a step above 0")
                return Fraction(random.randrange(low, high + 1, *step))
            case [_, *_] if all(type(one) in (int, float, str) for one in parameter):
                chosen = random.choice(parameter)
                if isinstance(chosen, float) and not math.isfinite(chosen):
                    raise self.wrong(field, f"{chosen} is not a number of JSON")
                return chosen if isinstance(chosen, str) else Fraction(str(chosen))
            case str():
                return self._evaluated(field, parameter, values)
        raise self.wrong(
            field, 'it must be {"range": [LOW, HIGH]} of whole numbers, a list to choose from, or an expression'
        )


class TemplateSource:
    """Draws from templates in turn, the same for the same seed."""

    def __init__(self, templates: Sequence[Template], form: TaskForm | None, seed: int) -> None:
        self._templates = templates
        self._form = form
        self._seed = seed

    async def proposals(self) -> AsyncIterator[Proposal | BadProposal]:
        draw = 0
        while True:
            yield self._proposal(self._templates[draw % len(self._templates)], draw)
            draw += 1

    def _proposal(self, template: Template, draw: int) -> Proposal | BadProposal:
        random = Random(f"{self._seed}:{draw}")
        for _ in range(_DRAWS):
            values, holds = template.draw(random)
            if holds:
                return template.proposal(self._form, values, draw)
        return BadProposal(f"{template.line}: field 'where' held in none of {_DRAWS} draws")

    def described(self) -> dict[str, Any]:
        # Where the file is does not decide.
        return {"templates": [{**vars(one), "line": ""} for one in self._templates]}


def template_file(path: str | Path) -> list[Template]:
    """The templates of a file. InvalidRequest names the line and the field."""
    found: dict[str, Template] = {}
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        where = f"{str(path)!r} line {number}"
        try:
            template = read(bounded_json.loads(line), where)
        except ValueError as error:
            raise InvalidRequest(f"{where} is not JSON: {error}") from None
        if template.id in found:
            raise template.wrong("id", f"there is another template {template.id!r}; ids are unique")
        found[template.id] = template
    if not found:
        raise InvalidRequest(f"{str(path)!r} has no templates")
    return list(found.values())


def read(entry: Any, line: str) -> Template:
    """One template. One draw is made, so that what is wrong is found before there is any instance."""
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{line} must be an object")
    if unknown := next((name for name in entry if name not in _KNOWN), None):
        near = get_close_matches(unknown, _KNOWN, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(_KNOWN)}"
        raise InvalidRequest(f"{line}: field {unknown!r} is not known; {hint}")
    fields = {name: value for name, value in entry.items() if name not in _OWN}
    Task.read(fields, line)
    parameters, conditions, gold = entry.get("parameters", {}), entry.get("where", []), entry.get("gold", [])
    template = Template(fields["id"], line, parameters, conditions, fields, entry.get("task"), gold)
    if not isinstance(parameters, dict) or not parameters:
        raise template.wrong("parameters", "it must be an object with at least one parameter")
    if not isinstance(conditions, list) or not all(isinstance(one, str) for one in conditions):
        raise template.wrong("where", "it must be a list of comparisons")
    if not isinstance(gold, list):
        raise template.wrong("gold", "it must be a list of calls")
    if not isinstance(template.content, dict | None):
        raise template.wrong("task", "it must be an object")
    if bool(template.content) == bool(fields.get("variables")):
        raise template.wrong("task", "give what instances get as 'task' or as 'variables', one of them")
    values, _ = template.draw(Random(0))
    for name, value in {**fields, "task": template.content, "gold": gold}.items():
        template.filled(name, value, values)
    return template
