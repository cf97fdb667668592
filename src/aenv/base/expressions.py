"""Arithmetic in texts of others: worked out exactly, with parameters, by a walk of its syntax tree.

Nothing of an expression is ever run as Python: what is not listed here does not exist in it.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

Value = Fraction | str | bool
MAX_LENGTH = 500
_MAX_BITS = 4_000  # of a numerator or a denominator
_LITERAL = re.compile(r"\d+(\.\d*)?|\.\d+")
_OPERATIONS: dict[type[ast.operator], Callable[[Fraction, Fraction], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[[list[Fraction]], Any]] = {
    "abs": lambda values: abs(values[0]),
    "ceil": lambda values: math.ceil(values[0]),
    "floor": lambda values: math.floor(values[0]),
    "max": max,
    "min": min,
    "round": lambda values: round(values[0]),
}


class BadExpression(ValueError):
    """A text that is not an expression, or one without a value; says why."""


def evaluate(text: str, names: Mapping[str, Value] | None = None) -> Value:
    """The value of numbers, parameters and texts with + - * / // %, one comparison, and a few functions."""
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"an expression has at most {MAX_LENGTH} characters, this one has {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body, text.strip(), names or {})
    except BadExpression:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadExpression(f"{text!r} is not an expression such as '(a + 4) * 2'") from None
    except ZeroDivisionError:
        raise BadExpression(f"{text!r} divides by zero") from None


def number(text: str) -> Fraction:
    """The value of an expression that must be a number."""
    return _numeric(evaluate(text))


def spelled(value: Value) -> str:
    """As it is written in a task: '42', '12.5', '1/3', a text as it is."""
    if isinstance(value, bool | str):
        return str(value)
    if value.denominator == 1:
        return str(value.numerator)
    places = next((n for n in range(1, 7) if 10**n % value.denominator == 0), None)
    if places is None:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _value(node: ast.expr, text: str, names: Mapping[str, Value]) -> Value:
    def inner(one: ast.expr) -> Value:
        return _value(one, text, names)

    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            written = ast.get_source_segment(text, node) or ""
            if not _LITERAL.fullmatch(written):  # 0.1 as it is written, not as the nearest float; no 1e999999
                raise BadExpression(f"write {written!r} in digits")
            return Fraction(written)
        case ast.Name(id=name):
            if name not in names:
                raise BadExpression(f"there is no parameter {name!r}; there are {', '.join(names) or 'none'}")
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_numeric(inner(operand))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _bounded(_OPERATIONS[type(operation)](_numeric(inner(left)), _numeric(inner(right))))
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in _COMPARISONS:
            one, other = inner(left), inner(right)
            if isinstance(one, str) != isinstance(other, str):
                raise BadExpression(f"cannot compare {one!r} with {other!r}")
            return _COMPARISONS[type(compared)](one, other)
        case ast.Call(func=ast.Name(id=name), args=[_, *more] as given, keywords=[]) if name in _FUNCTIONS:
            if more and name not in ("max", "min"):
                raise BadExpression(f"{name!r} takes one number")
            return Fraction(_FUNCTIONS[name]([_numeric(inner(one)) for one in given]))
    raise BadExpression(
        "use numbers, parameters, texts, + - * / // %, one comparison, abs, ceil, floor, max, min and round only"
    )


def _numeric(value: Value) -> Fraction:
    if isinstance(value, bool | str):
        raise BadExpression(f"{value!r} is not a number")
    return value


def _bounded(value: Any) -> Fraction:
    found = Fraction(value)
    if max(abs(found.numerator), found.denominator).bit_length() > _MAX_BITS:
        raise BadExpression("the result is too large")
    return found
