"""Purity: whether loading an environment's code does the same for every instance, so that once is enough.

It does where the code only defines things: imports of the standard library and of its own files, functions,
classes, constants. What an instance is given (variables, arguments), time, chance, files and processes have no
part in it. Found by reading the code, and in doubt denied: then each instance loads the code itself.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator

_KNOWN_PACKAGES = {"aenv", "annotated_types", "pydantic", "typing_extensions"}
# What differs between instances, or is theirs to change.
_OWN_NAMES = {"environ", "environb", "argv", "stdin", "stdout", "stderr", "modules", "meta_path", "path"}
# Calls that give the same everywhere, and something new each time.
_CALLS = {
    *(
        "Annotated",
        "ConfigDict",
        "ContextVar",
        "Counter",
        "Decimal",
        "Depends",
        "Field",
        "Fraction",
        "Lock",
        "NewType",
        "ParamSpec",
    ),
    *("Path", "PurePath", "RLock", "TypeVar", "bool", "bytes", "cast", "compile", "defaultdict", "deque", "dict"),
    *(
        "enumerate",
        "field",
        "float",
        "frozenset",
        "getLogger",
        "get_logger",
        "int",
        "len",
        "list",
        "max",
        "min",
        "namedtuple",
    ),
    *("object", "partial", "range", "set", "sorted", "str", "sum", "timedelta", "tuple", "zip"),
}
_DECORATORS = {
    *("abstractmethod", "asynccontextmanager", "cache", "cached_property", "classmethod", "contextmanager"),
    *("dataclass", "final", "lru_cache", "overload", "override", "property", "staticmethod", "wraps"),
}
_PLAIN = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.DictComp,
    ast.FormattedValue,
    ast.GeneratorExp,
    ast.IfExp,
    ast.JoinedStr,
    ast.Lambda,
    ast.List,
    ast.ListComp,
    ast.Name,
    ast.Set,
    ast.SetComp,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
)
_MOST_FILES = 500


def is_same_for_all(root: str) -> bool:
    """Whether all code below `root` only defines things."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    files = [file for file in files if file.endswith(".py")]
    if len(files) > _MOST_FILES:
        return False
    own = {os.path.relpath(file, root).split("/")[0].removesuffix(".py") for file in files}
    try:
        return all(_is_pure(ast.parse(_read(file)), own) for file in files)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False


def _read(file: str) -> bytes:
    with open(file, "rb") as text:
        return text.read()


def _is_pure(module: ast.Module, own: set[str]) -> bool:
    defined = {node.name for node in ast.walk(module) if isinstance(node, _DEFINITIONS)}
    return all(_statement(node, own, defined) for node in module.body)


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _statement(node: ast.stmt, own: set[str], defined: set[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return all(_is_known(name.name, own) for name in names)
        case ast.ImportFrom(module=module, level=level):
            return level > 0 or _is_known(module or "", own)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _decorated(node, defined) and _expressions(_of_signature(node), defined)
        case ast.ClassDef(bases=bases, keywords=keywords, body=body):
            given = [*bases, *(keyword.value for keyword in keywords)]
            inner = all(_statement(one, own, defined) for one in body)
            return inner and _decorated(node, defined) and _expressions(given, defined)
        case ast.Assign(targets=targets, value=value):
            return all(map(_is_name, targets)) and _expressions([value], defined)
        case ast.AnnAssign(target=target, value=value):
            return _is_name(target) and _expressions([value] if value else [], defined)
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return True
        case ast.If(test=test, body=body, orelse=rest):
            return _expressions([test], defined) and all(_statement(one, own, defined) for one in [*body, *rest])
        case ast.Try(body=body, handlers=handlers, orelse=rest, finalbody=[]):
            every = [*body, *rest, *(one for handler in handlers for one in handler.body)]
            return all(_statement(one, own, defined) for one in every)
    return False


def _is_known(module: str, own: set[str]) -> bool:
    package = module.partition(".")[0]
    return package in own or package in sys.stdlib_module_names or package in _KNOWN_PACKAGES


def _is_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (isinstance(target, ast.Tuple) and all(map(_is_name, target.elts)))


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, defined: set[str]) -> bool:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = _last_name(called)
        if name in defined or not (name in _DECORATORS or name.startswith("register_") or name == "setter"):
            return False
        if isinstance(decorator, ast.Call) and not _expressions(_arguments(decorator), defined):
            return False
    return True


def _of_signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """What is worked out when a function is defined. Annotations are types, and are read later."""
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default)


def _expressions(nodes: Iterable[ast.expr], defined: set[str]) -> bool:
    return all(_expression(node, defined) for node in nodes)


def _expression(node: ast.expr, defined: set[str]) -> bool:
    if isinstance(node, ast.Lambda):
        return True  # it is only defined here
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        return name in _CALLS and name not in defined and _expressions(_arguments(node), defined)
    if not isinstance(node, _PLAIN) or _last_name(node) in _OWN_NAMES:
        return False
    inner = (child for child in ast.iter_child_nodes(node))
    return all(_part(child, defined) for child in inner)


def _part(node: ast.AST, defined: set[str]) -> bool:
    if isinstance(node, ast.expr):
        return _expression(node, defined)
    if isinstance(node, ast.comprehension):
        return _expressions([node.iter, *node.ifs], defined)
    return True  # operators, and whether a name is read


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
