"""Authoring: decorators, schemas, validation, content. No server anywhere."""

from __future__ import annotations

import dataclasses
import enum
import socket
import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_core import ValidationError

from aenv import (
    Blob,
    Context,
    Depends,
    Image,
    Text,
    register_function,
    register_health,
    register_reset,
    register_resource,
    register_reward,
    register_tool,
)
from aenv.base.errors import InvalidRequest, RegistrationError
from aenv.inside.author import pydantic_shapes, shapes
from aenv.inside.author.content import UnserialisableResult, to_output
from aenv.inside.author.registry import Registry, collecting
from aenv.inside.author.signature import Signature


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Query(BaseModel):
    query: str
    max_results: int = 10


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@pytest.fixture
def registry():
    with collecting(Registry()) as fresh:
        yield fresh


def test_every_decorator_works_bare_with_parentheses_and_with_options(registry):
    @register_tool
    def bare(): ...

    @register_tool()
    def called(): ...

    @register_tool(name="renamed", description="Told.")
    def original(): ...

    @register_function
    def plain(): ...

    @register_function(endpoint="/score", method="get")
    def custom(): ...

    @register_reward
    def first(): ...

    @register_reward(name="second")
    def other(): ...

    @register_health()
    def health(): ...

    @register_reset
    def reset(seed=None, **options): ...

    assert list(registry.tools) == ["bare", "called", "renamed"]
    assert registry.tools["renamed"].description == "Told."
    assert registry.functions["plain"].endpoint == "/functions/plain"
    assert (registry.functions["custom"].endpoint, registry.functions["custom"].method) == ("/score", "GET")
    assert list(registry.rewards) == ["first", "second"]
    assert registry.health and registry.health.name == "health"
    assert registry.reset and registry.reset.name == "reset"


def test_a_decorated_function_stays_an_ordinary_function(registry):
    @register_tool
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8


def test_the_schema_comes_from_signature_and_docstring():
    def search(query: str, paths: list[str], limit: int = 5, colour: Colour = Colour.RED) -> dict:
        """Search for code.

        Looks into every file.

        Args:
            query: What to look for,
                on two lines.
            paths (list[str]): Where to look.
        Returns:
            The matches.
        """

    signature = Signature(search)
    properties = signature.input_schema["properties"]
    assert signature.description == "Search for code.\n\nLooks into every file.\n\nReturns:\n    The matches."
    assert properties["query"] == {
        "title": "Query",
        "type": "string",
        "description": "What to look for, on two lines.",
    }
    assert properties["paths"]["items"] == {"type": "string"}
    assert properties["paths"]["description"] == "Where to look."
    assert properties["limit"]["default"] == 5
    assert properties["colour"]["default"] == "red"
    assert signature.input_schema["required"] == ["query", "paths"]
    assert signature.output_schema == {"type": "object", "additionalProperties": True}


def test_arguments_become_the_annotated_types():
    def tool(
        n: int,
        query: Query,
        point: Point,
        colour: Colour,
        mode: Literal["fast", "slow"] = "fast",
        note: str | None = None,
        ratio: float = Field(0.5, ge=0, le=1),
    ): ...

    arguments = {"n": "3", "query": {"query": "x"}, "point": {"x": 1}, "colour": "blue"}
    assert Signature(tool).validate(arguments) == {
        "n": 3,
        "query": Query(query="x"),
        "point": Point(1),
        "colour": Colour.BLUE,
        "ratio": 0.5,
    }


def test_a_field_brings_its_default_constraints_and_description():
    def tool(
        ratio: float = Field(0.5, ge=0, description="told"), items: list[int] = Field(default_factory=list)
    ): ...

    signature = Signature(tool)
    assert signature.validate({}) == {"ratio": 0.5, "items": []}
    assert signature.input_schema["properties"]["ratio"] == {
        "default": 0.5,
        "description": "told",
        "minimum": 0,
        "title": "Ratio",
        "type": "number",
    }
    with pytest.raises(InvalidRequest, match="'ratio': input should be greater than or equal to 0"):
        signature.validate({"ratio": -1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "'count' is required"),
        ({"count": "many"}, "'count': input should be a valid integer"),
        ({"count": 1, "point": {"x": 1, "y": "a"}}, "'point.y': input should be a valid integer"),
        ({"count": 1, "cuont": 2}, "unknown argument 'cuont', did you mean 'count'?"),
        ({"count": 1, "mode": "x"}, "'mode': input should be 'a' or 'b'"),
    ],
)
def test_bad_arguments_are_named_with_the_reason(arguments, message):
    def tool(count: int, point: Point | None = None, mode: Literal["a", "b"] = "a"): ...

    with pytest.raises(InvalidRequest, match="bad arguments for 'tool'") as caught:
        Signature(tool).validate(arguments)
    assert message in caught.value.message


def test_a_duplicate_name_is_an_error_that_says_who_has_it(registry):
    @register_tool
    def tool(): ...

    with pytest.raises(RegistrationError, match=r"tool 'tool' is registered already, by .*test_author\.py:\d+"):

        @register_tool(name="tool")
        def another(): ...


def test_a_type_that_cannot_come_from_json_is_refused_by_name():
    def tool(connection: socket.socket): ...

    with pytest.raises(RegistrationError, match="'tool' cannot be called from JSON: parameter 'connection'"):
        Signature(tool)


@pytest.mark.parametrize("function", [lambda *args: None, eval("lambda x, /: x")])
def test_parameters_that_have_no_name_on_the_wire_are_refused(function):
    with pytest.raises(RegistrationError, match="cannot be sent by name"):
        Signature(function)


@pytest.mark.parametrize("endpoint", ["/mcp", "/health", "/tools/x", "/task/reward", "/", "/a b"])
def test_an_endpoint_of_the_runtime_itself_cannot_be_taken(registry, endpoint):
    with pytest.raises(RegistrationError, match="endpoint"):
        register_function(endpoint=endpoint)(lambda: None)


def test_a_resource_must_take_what_its_uri_holds(registry):
    with pytest.raises(RegistrationError, match="placeholders"):
        register_resource("notes://{name}")(lambda title: title)


def test_injected_parameters_never_show_in_the_schema():
    def tool(
        text: str,
        context: Context,
        database: Annotated[Any, Depends(lambda: 1)],
        cache: Any = Depends(lambda: 2, scope="call"),
    ): ...

    signature = Signature(tool)
    assert list(signature.input_schema["properties"]) == ["text"]
    assert set(signature.injected) == {"context", "database", "cache"}


PNG = b"\x89PNG\r\n\x1a\n...."


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_picture_bytes_become_image_content_by_their_magic(data, mime_type):
    (part,) = output_of(data).content
    assert (part["type"], part["mimeType"]) == ("image", mime_type)


def test_other_bytes_become_a_blob():
    (part,) = output_of(b"\x00\x01").content
    assert part == {
        "type": "resource",
        "resource": {"uri": "aenv://result/blob", "mimeType": "application/octet-stream", "blob": "AAE="},
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (2, "2"),
        (True, "true"),
        (1.5, "1.5"),
        ([1, "a"], '[1,"a"]'),
        ({"a": 1}, '{"a":1}'),
        (Query(query="x"), '{"query":"x","max_results":10}'),
        (Point(1, 2), '{"x":1,"y":2}'),
    ],
)
def test_data_is_written_as_compact_json_text(value, text):
    assert output_of(value).content == [{"type": "text", "text": text}]


def test_none_is_no_content():
    assert output_of(None).content == []


def test_a_sequence_with_binary_parts_becomes_several_parts():
    parts = output_of(("look", PNG, {"size": 2}, Text("end"), Image(b"x", "image/bmp"), Blob(b"b"))).content
    assert [part["type"] for part in parts] == ["text", "image", "text", "text", "image", "resource"]
    assert parts[2]["text"] == '{"size":2}'
    assert parts[4]["mimeType"] == "image/bmp"


def test_a_list_of_mcp_parts_is_passed_on():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert output_of(parts).content == parts


def test_a_list_of_dicts_that_only_look_a_little_like_parts_stays_data():
    assert output_of([{"type": "text"}]).content == [{"type": "text", "text": '[{"type":"text"}]'}]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, None),
        (bytes, None),
        (None, None),
        (Any, None),
        (list, None),
        (dict, "object"),
        (Query, "object"),
        (Point, "object"),
        (int, "wrapped"),
        (list[int], "wrapped"),
        (bool | None, "wrapped"),
    ],
)
def test_the_return_type_decides_whether_there_is_structured_content(hint, schema):
    def tool(): ...

    tool.__annotations__["return"] = hint
    output = Signature(tool).output_schema
    if schema is None:
        assert output is None
    else:
        assert output and output["type"] == "object"
        assert "result" in output["properties"] if schema == "wrapped" else "x-fastmcp-wrap-result" not in output


def test_structured_content_matches_the_output_schema():
    def models() -> Query: ...
    def numbers() -> list[int]: ...
    def maybe() -> int | None: ...

    assert to_output(Query(query="x"), Signature(models).structure).structured == {"query": "x", "max_results": 10}
    assert to_output([1], Signature(numbers).structure).structured == {"result": [1]}
    assert to_output(None, Signature(maybe).structure).structured == {"result": None}


def test_a_result_that_breaks_its_annotation_is_an_error_that_says_where():
    def tool() -> dict[str, int]: ...

    with pytest.raises(UnserialisableResult, match=r"'tool' returned something else .* at a: "):
        Signature(tool).structure({"a": "x"})


def test_a_result_without_a_json_form_is_a_clear_error():
    with pytest.raises(UnserialisableResult, match="a result of type dict has no JSON form"):
        output_of({"socket": object()})


def output_of(value):
    return to_output(value, lambda value: None)


@pytest.mark.parametrize(
    "hint",
    [
        *(str, int, float, bool, Any, list, dict, list[str], list[list[int]], dict[str, Any], dict[str, int]),
        *(str | None, list[int] | None, dict[str, list[bool]]),
    ],
)
def test_simple_types_have_the_same_shape_with_and_without_pydantic(hint):
    arguments = {"a_name": shapes.Argument(hint, True, "told"), "other": shapes.Argument(hint, False)}
    plain = shapes.of_arguments(arguments, extra=False)
    full = pydantic_shapes.of_arguments(arguments, extra=False)
    assert plain.schema == full.schema
    result = pydantic_shapes.of_result(hint)
    assert result and shapes.of_result(hint).schema == result.schema
    for value in ("text", 3, 2.5, True, None, [1], ["a"], {"a": 1}, {"a": [True]}, {1: 2}, [[1]], object()):
        assert outcome(plain, {"a_name": value}) == outcome(full, {"a_name": value})


def outcome(shape, value):
    try:
        return shape.validate(value)
    except ValidationError as error:
        return error.errors(include_url=False)


def test_a_simple_environment_does_not_load_pydantic():
    code = (
        "import sys\nfrom aenv import register_tool\n@register_tool\n"
        "def tool(a: str, b: list[int] | None = None) -> dict: ...\n"
        "import aenv.inside.runtime.program\nprint('pydantic' in sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "False\n"
