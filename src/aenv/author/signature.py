"""What a function takes and gives: JSON schemas for the wire, validation for the call.

The schema comes from the annotations (pydantic) and the docstring. A parameter without an annotation takes
anything; one that pydantic cannot describe is an error when the module is imported, not at the first call.
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter
from pydantic import ValidationError as PydanticValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python
from typing_extensions import TypedDict

from ..errors import InvalidRequest, RegistrationError
from . import docstrings
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
        self._defaults: dict[str, Any] = {}
        self._open = False
        self._adapter = self._arguments_adapter(hints, described)
        self.input_schema = self._input_schema()
        self._returns = self._returns_adapter(hints.get("return", Any))
        self.output_schema = self._output_schema()

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function. InvalidRequest names each bad field and why."""
        try:
            valid = self._adapter.validate_python(arguments)
        except PydanticValidationError as error:
            raise InvalidRequest(f"bad arguments for {self.name!r}: {self._explain(error)}") from None
        return {**self._defaults, **valid} if self._defaults else valid

    def structure(self, value: Any) -> Any:
        """The structured form of a result, or None where the return type has none."""
        if self._returns is None:
            return None
        try:
            jsonable = to_jsonable(self._returns.validate_python(value))
        except PydanticValidationError as error:
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

    def _arguments_adapter(
        self, hints: Mapping[str, Any], described: Mapping[str, str]
    ) -> TypeAdapter[dict[str, Any]]:
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name in self.injected:
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise RegistrationError(
                    f"parameter {name!r} of {self.name!r} cannot be sent by name; "
                    "use ordinary parameters without '*args' or '/'"
                )
            fields[name] = self._field(name, parameter, hints.get(name, Any), described.get(name))
        return self._adapt(fields)

    def _field(self, name: str, parameter: inspect.Parameter, hint: Any, description: str | None) -> Any:
        default = parameter.default
        if isinstance(default, FieldInfo):
            # `x: int = Field(1, ge=0)`: python would hand the FieldInfo itself to the function.
            hint = Annotated[hint, default]
            default = default.get_default(call_default_factory=True)
            if default is PydanticUndefined:
                default = parameter.empty
            else:
                self._defaults[name] = default
        already = any(isinstance(mark, FieldInfo) and mark.description for mark in get_args(hint)[1:])
        if description and not already:
            hint = Annotated[hint, Field(description=description)]
        self._check(name, hint)
        return Required[hint] if default is parameter.empty else NotRequired[hint]

    def _check(self, name: str, hint: Any) -> None:
        try:
            TypeAdapter(hint).json_schema()
        except PydanticUserError as error:
            raise RegistrationError(
                f"parameter {name!r} of {self.name!r} has a type that cannot come from JSON "
                f"({str(error).splitlines()[0]}); use basic types, lists, dicts, enums, pydantic models or "
                "dataclasses, or inject it with Depends"
            ) from error

    def _adapt(self, fields: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
        # A TypedDict rather than a model: any parameter name is legal, and the result is the kwargs.
        make: Any = TypedDict
        shape = make("Arguments", fields)
        shape.__pydantic_config__ = ConfigDict(extra="allow" if self._open else "forbid")
        return TypeAdapter(shape)

    def _input_schema(self) -> dict[str, Any]:
        schema = self._adapter.json_schema()
        schema.pop("title", None)
        schema.setdefault("properties", {})
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name not in schema["properties"]:
                continue
            default = self._defaults.get(name, parameter.default)
            if default is not parameter.empty and not isinstance(default, FieldInfo):
                schema["properties"][name]["default"] = to_jsonable_python(default, fallback=repr)
        return schema

    def _returns_adapter(self, hint: Any) -> TypeAdapter[Any] | None:
        self._wrapped = False
        if not _is_structured(hint):
            return None
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hint)
            schema = adapter.json_schema(mode="serialization")
        except PydanticUserError:
            return None  # a return type without a schema: the value itself decides how it is sent
        self._wrapped = schema.get("type") != "object" and "$ref" not in schema
        return adapter

    def _output_schema(self) -> dict[str, Any] | None:
        if self._returns is None:
            return None
        schema = self._returns.json_schema(mode="serialization")
        if "$ref" in schema:  # a recursive model; MCP wants an object at the top
            schema = {"type": "object", **schema}
        if not self._wrapped:
            return schema
        definitions = schema.pop("$defs", None)
        wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        # FastMCP's clients unwrap a result by this mark.
        return {**wrapped, "x-fastmcp-wrap-result": True, **({"$defs": definitions} if definitions else {})}

    def _explain(self, error: PydanticValidationError) -> str:
        return "; ".join(self._explain_one(dict(item)) for item in error.errors(include_url=False)[:5])

    def _explain_one(self, item: dict[str, Any]) -> str:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        match item["type"]:
            case "missing":
                return f"{where!r} is required"
            case "extra_forbidden":
                near = difflib.get_close_matches(where, self.input_schema["properties"], n=1)
                return f"unknown argument {where!r}" + (f", did you mean {near[0]!r}?" if near else "")
        given = repr(item["input"])
        return f"{where!r}: {_lower(item['msg'])}, got {given if len(given) <= 60 else given[:57] + '…'}"


def _is_structured(hint: Any) -> bool:
    """Whether a return type promises data rather than text or binary content."""
    if hint in (Any, None, type(None), inspect.Signature.empty) or hint in _UNSTRUCTURED:
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


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
