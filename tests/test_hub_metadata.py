"""What an environment offers is read from its source, which is never run."""

from __future__ import annotations

import pytest

from aenv.control.hub import metadata

CODE = '''
import aenv
from aenv import Context, Depends, register_function, register_reward, register_tool
raise SystemExit("nobody runs this")

@register_tool
async def search(query: str, limit: int = 10, *, deep: bool = False, tags: list[str] | None = None) -> dict:
    """Look it up.

    Slowly.
    """

@aenv.register_tool(name="renamed", description="as told")
def original(context: Context, db=Depends(open), any_thing=None, kind: "Odd[int]" = 1): ...

@register_function(endpoint="/x")
def plain(): ...

class Inside:
    @register_reward
    def score(self, answer: float): ...

@mcp.tool()
def of_fastmcp(x: Optional[int]): ...

@other
def not_offered(x): ...
'''


def schema(properties: dict[str, object], *required: str) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": [*required]}


def test_decorated_functions_are_found_with_their_parameters():
    found = metadata.read({"src/a.py": CODE})
    search = {"query": {"type": "string"}, "limit": {"type": "integer"}, "deep": {"type": "boolean"}}
    assert found.tools == [
        {
            "name": "search",
            "description": "Look it up.\n\nSlowly.",
            "inputSchema": schema({**search, "tags": {"type": "array"}}, "query"),
        },
        {"name": "renamed", "description": "as told", "inputSchema": schema({"any_thing": {}, "kind": {}})},
        {"name": "of_fastmcp", "description": "", "inputSchema": schema({"x": {"type": "integer"}}, "x")},
    ]
    assert [offer["name"] for offer in found.functions] == ["plain"]
    assert found.rewards == [
        {"name": "score", "description": "", "inputSchema": schema({"answer": {"type": "number"}}, "answer")}
    ]


def test_only_the_files_that_a_runtime_would_load_count():
    code = "@register_tool\ndef {}(): ..."
    names = ["src/a.py", "src/test_b.py", "src/tests/c.py", "setup.py", "src/conftest.py"]
    found = metadata.read({name: code.format(f"t{n}") for n, name in enumerate(names)})
    assert [tool["name"] for tool in found.tools] == ["t0"]
    assert len(metadata.read({"main.py": code.format("a")}).tools) == 1


DEEP = "int" + "|int" * 600
UNREADABLE = {
    "no Python": "def (",
    "NUL": "\0",
    "brackets": "(" * 100_000,
    "signs": "-" * 100_000,
    "dots": "a." * 50_000 + "a",
    "sums": "1+" * 50_000 + "1",
    "calls": "x" + "(a)" * 40_000,
    "types": f"@register_tool\ndef deep(x: {DEEP}): ...",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_source_that_cannot_be_parsed_offers_nothing_and_does_no_harm(text):
    good = "@register_tool\ndef a(): ..."
    assert [tool["name"] for tool in metadata.read({"a.py": f"# @tool\n{text}", "b.py": good}).tools] == ["a"]


def test_what_a_name_of_an_annotation_injects_is_no_parameter() -> None:
    named = "Shell = Annotated[Terminal, Depends(open_terminal)]\nWords = Annotated[str, 1]\n"
    code = "@register_tool\ndef run(shell: Shell, command: Words, again: Shell | None): ...\n"
    [tool] = metadata.read({"src/z.py": named, "src/b.py": f"from z import Shell, Words\n{code}"}).tools
    assert list(tool["inputSchema"]["properties"]) == tool["inputSchema"]["required"] == ["command"]
