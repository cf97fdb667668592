"""What a function takes and gives: JSON schemas for the wire, validation for the call.

The schema comes from the annotations and the docstring. A parameter without an annotation takes anything; one
whose type cannot come from JSON is an error when the module is imported, not at the first call.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic_core import ValidationError, to_jsonable_python

from ...base.errors import InvalidRequest, RegistrationError
from . import docstrings, shapes
from .content import Audio, Blob, Image, Text, UnserialisableResult, to_jsonable
from .inject import injections

_UNSTRUCTURED = (str, bytes, bytearray, memoryview, Text, Image, Audio, Blob)


class Signature:
    """The callable face of an author's function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.is_async = inspect.iscoroutinefunction(function)
        hints = self._hints()
        self.injected = injections(function, hints)
        self.description, described = docstrings.parse(function)
        self._arguments = self._shape_of_arguments(hints, described)
        self.input_schema = self._arguments.schema
        self._result = shapes.of_result(hints["return"]) if _is_structured(hints.get("return", Any)) else None
        self._wrapped = self._result is not None and self._result.schema.get("type") != "object"
        self.output_schema = self._output_schema()

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function. InvalidRequest names each bad field and why."""
        try:
            valid: dict[str, Any] = self._arguments.validate(arguments)
        except ValidationError as error:
            reasons = (self._explained(dict(item)) for item in error.errors(include_url=False)[:5])
            raise InvalidRequest(f"bad arguments for {self.name!r}: {'; '.join(reasons)}") from None
        return valid

    def structure(self, value: Any) -> Any:
        """The structured form of a result, or None where the return type has none."""
        if self._result is None:
            return None
        try:
            jsonable = to_jsonable(self._result.validate(value))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UnserialisableResult(
                f"{self.name!r} returned something else than its annotation says"
                f"{f' at {where}' if where else ''}: {_lower(first['msg'])}"
            ) from None
        return {"result": jsonable} if self._wrapped else jsonable

    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except Exception as error:  # boundary: author's annotations
            raise RegistrationError(f"cannot read the annotations of {self.name!r}: {error}") from error

    def _shape_of_arguments(self, hints: Mapping[str, Any], described: Mapping[str, str]) -> shapes.Shape:
        parameters = {
            name: parameter
            for name, parameter in inspect.signature(self.function).parameters.items()
            if name not in self.injected
        }
        extra = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        arguments = {
            name: self._argument(parameter, hints.get(name, Any), described.get(name))
            for name, parameter in parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        try:
            shape = shapes.of_arguments(arguments, extra=extra)
        except TypeError as error:
            raise RegistrationError(
                f"{self.name!r} cannot be called from JSON: {error}; use basic types, lists, dicts, enums, "
                "pydantic models or dataclasses, or inject it with Depends"
            ) from error
        for name, argument in arguments.items():
            default = parameters[name].default
            if not argument.required and not _is_field(default):
                shape.schema["properties"][name]["default"] = to_jsonable_python(default, fallback=repr)
        return shape

    def _argument(self, parameter: inspect.Parameter, hint: Any, description: str | None) -> shapes.Argument:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise RegistrationError(
                f"parameter {parameter.name!r} of {self.name!r} cannot be sent by name; "
                "use ordinary parameters without '*args' or '/'"
            )
        default = parameter.default
        if _is_field(default):
            # `x: int = Field(1, ge=0)`: pydantic fills in the default; python would hand over the Field itself.
            return shapes.Argument(Annotated[hint, default], default.is_required(), description)
        return shapes.Argument(hint, default is parameter.empty, description)

    def _output_schema(self) -> dict[str, Any] | None:
        if self._result is None:
            return None
        if not self._wrapped:
            return self._result.schema
        schema = dict(self._result.schema)
        definitions = schema.pop("$defs", None)
        wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        # FastMCP's clients unwrap a result by this mark.
        return {**wrapped, "x-fastmcp-wrap-result": True, **({"$defs": definitions} if definitions else {})}

    def _explained(self, item: dict[str, Any]) -> str:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        match item["type"]:
            case "missing":
                return f"{where!r} is required"
            case "extra_forbidden":
                import difflib  # only for this message

                near = difflib.get_close_matches(where, self.input_schema["properties"], n=1)
                return f"unknown argument {where!r}" + (f", did you mean {near[0]!r}?" if near else "")
        given = repr(item["input"])
        return f"{where!r}: {_lower(item['msg'])}, got {given if len(given) <= 60 else given[:57] + '…'}"


def _is_structured(hint: Any) -> bool:
    """Whether a return type promises data rather than text or binary content."""
    if hint in (Any, None, type(None)) or hint in _UNSTRUCTURED:
        return False
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_structured(get_args(hint)[0])
    if origin is not None and not isinstance(origin, type):  # Optional, Union, Literal
        arguments = [argument for argument in get_args(hint) if argument is not type(None)]
        return all(not isinstance(argument, type) or argument not in _UNSTRUCTURED for argument in arguments)
    if origin in (list, tuple, set, frozenset):
        return not any(argument in _UNSTRUCTURED[1:] or argument is Any for argument in get_args(hint))
    # A bare list or tuple may hold content parts: only the value can tell.
    return hint not in (list, tuple)


def _is_field(default: Any) -> bool:
    """Whether a default is a pydantic `Field(…)`, told without importing pydantic."""
    return type(default).__name__ == "FieldInfo"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
