"""What an environment offers, read from its source: nothing of it is run."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

_DECORATORS = {
    "register_tool": "tools",
    "tool": "tools",  # FastMCP's
    "register_function": "functions",
    "register_reward": "rewards",
}
# To parse is 50 times as slow as to search, and most files of an environment decorate nothing.
_DECORATED = re.compile(rf"@[\w.\s]*\b(?:{'|'.join(_DECORATORS)})\b")
_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
}
_INJECTED = ("Context", "Depends")
_MAX_OFFERS = 1000
_MAX_TEXT = 4000
Found = TypeVar("Found")


@dataclass(frozen=True)
class Offers:
    """What an environment offers, each with name, description and inputSchema, as MCP lists tools."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    functions: list[dict[str, Any]] = field(default_factory=list)
    rewards: list[dict[str, Any]] = field(default_factory=list)


def read(sources: Mapping[str, str]) -> Offers:
    """The decorated functions of some Python files (path to text).

    A file that is no Python is left out: whether it runs is for the runtime to say.
    """
    found = Offers()
    by_kind: dict[str, list[dict[str, Any]]] = vars(found)
    in_source_folder = any(path.startswith("src/") for path in sources)
    kept = [
        text
        for path, text in sorted(sources.items())
        if not _is_test(path) and (path.startswith("src/") or not in_source_folder)
    ]
    # A file may import what another one names. One tree at a time is in memory.
    injected = {
        name
        for text in kept
        if "Annotated" in text and "Depends" in text
        for name in _of_tree(text, _injected_names)
    }
    for text in kept:
        if not _DECORATED.search(text):
            continue
        for kind, offer in _of_tree(text, lambda tree: _offers(tree, injected)):
            if len(by_kind[kind]) < _MAX_OFFERS:
                by_kind[kind].append(offer)
    return found


def read_folder(folder: Path) -> Offers:
    """The same for a project on this machine."""
    root = folder / "src" if (folder / "src").is_dir() else folder
    files = [path for path in sorted(root.rglob("*.py"))[:500] if path.is_file()]
    return read({str(path.relative_to(folder)): path.read_text("utf-8", "replace") for path in files})


def _of_tree(text: str, found: Callable[[ast.Module], Iterator[Found]]) -> list[Found]:
    try:
        return list(found(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _is_test(path: str) -> bool:
    *folders, name = path.split("/")
    return name.startswith("test_") or name == "conftest.py" or bool({"tests", "test"} & set(folders))


def _injected_names(tree: ast.Module) -> Iterator[str]:
    """What the file calls an annotation that injects: `Database = Annotated[Connection, Depends(connect)]`."""
    for node in tree.body:
        target: Any = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value: Any = getattr(node, "value", None)
        is_annotation = isinstance(value, ast.Subscript) and _name(value.value) == "Annotated"
        if isinstance(target, ast.Name) and is_annotation and "'Depends'" in ast.dump(value):
            yield target.id


def _offers(tree: ast.Module, injected: AbstractSet[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                call = decorator if isinstance(decorator, ast.Call) else None
                kind = _DECORATORS.get(_name(call.func if call else decorator))
                if kind:
                    yield kind, _offer(node, call, injected)


def _offer(
    node: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call | None, injected: AbstractSet[str]
) -> dict[str, Any]:
    options = {
        keyword.arg: keyword.value.value
        for keyword in (call.keywords if call else ())
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    }
    docstring = inspect.cleandoc(ast.get_docstring(node) or "")
    return {
        "name": options.get("name", node.name)[:_MAX_TEXT],
        "description": options.get("description", docstring)[:_MAX_TEXT],
        "inputSchema": _schema(node.args, injected),
    }


def _schema(arguments: ast.arguments, injected: AbstractSet[str]) -> dict[str, Any]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    named = [
        *zip(positional, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    visible = [(argument, default) for argument, default in named if not _is_injected(argument, default, injected)]
    return {
        "type": "object",
        "properties": {argument.arg: _type(argument.annotation) for argument, _ in visible},
        "required": [argument.arg for argument, default in visible if default is None],
    }


def _is_injected(argument: ast.arg, default: ast.expr | None, injected: AbstractSet[str]) -> bool:
    """Whether the runtime gives it, and no caller: `context: Context`, `db=Depends(connect)`."""
    annotation = ast.dump(argument.annotation) if argument.annotation else ""
    given = _name(default.func) if isinstance(default, ast.Call) else ""
    return (
        argument.arg in ("self", "cls")
        or given in _INJECTED
        or any(f"'{name}'" in annotation for name in _INJECTED)
        or any(isinstance(node, ast.Name) and node.id in injected for node in ast.walk(argument))
    )


def _type(annotation: ast.expr | None) -> dict[str, Any]:
    """The JSON type of an annotation, where it is plain to see; {} is anything."""
    if isinstance(annotation, ast.BinOp):  # X | None
        both = (annotation.left, annotation.right)
        sides = [_type(side) for side in both if not (isinstance(side, ast.Constant) and side.value is None)]
        return sides[0] if len(sides) == 1 else {}
    if isinstance(annotation, ast.Subscript):
        inner = annotation.slice
        if _name(annotation.value) in ("Optional", "Annotated"):
            return _type(inner.elts[0] if isinstance(inner, ast.Tuple) else inner)
        return _type(annotation.value)
    kind = _TYPES.get(_name(annotation))
    return {"type": kind} if kind else {}


def _name(node: ast.expr | None) -> str:
    """The last word of `register_tool`, `aenv.register_tool`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
