"""Tools as MCP servers of others describe them: with names, properties and references that our own never have."""

from typing import Any

from aenv import register_function, wrap_agent

START = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
TREE = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/definitions/Tree"}}}}
SCHEMAS: dict[str, dict[str, Any]] = {
    "get-weather": {"properties": {"my-place": {"type": "string"}, "$filter": {"type": "string"}}},
    "import": {"properties": {"class": {"type": "string"}}},
    "nothing": {},
    "anything": {"properties": {"value": True}, "required": ["value"]},
    "nested_anything": {"properties": {"value": {"type": "object", "properties": {"inner": True}}}},
    "move": {"properties": {"start": START, "end": {"$ref": "#/properties/start"}}, "required": ["start", "end"]},
    "plant": {"properties": {"tree": {"$ref": "#/definitions/Tree"}}, "definitions": {"Tree": TREE}},
}

# The server is away, so each call fails with its address.
wrap_agent(
    "http://127.0.0.1:9/mcp",
    tools=[{"name": name, "inputSchema": {"type": "object", **schema}} for name, schema in SCHEMAS.items()],
)


@register_function
def received() -> list[Any]:
    """The calls that arrived: none, since the server is away."""
    return []
