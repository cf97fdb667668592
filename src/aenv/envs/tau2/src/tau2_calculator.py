"""The calculator of airline and retail: Python's arithmetic on literals, and nothing else of Python.

It answers as evaluating the text with Python would, errors included, without evaluating anything.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any

_ALLOWED = frozenset("0123456789+-*/(). ")
_MOST_CHARACTERS = 1000
_MOST_BITS = 20_000  # of the result of a power; above the largest number that becomes a float

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Pow: lambda left, right: _power(left, right),
}


def calculate(expression: Any) -> str:
    """The value of an expression, rounded to two decimals. Raises what Python would raise."""
    if not all(character in _ALLOWED for character in expression):
        raise ValueError("Invalid characters in expression")
    if len(expression) > _MOST_CHARACTERS:
        raise ValueError(f"expression too long: at most {_MOST_CHARACTERS} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # 2(3) is answered by an error
        tree = ast.parse(str(expression).lstrip(" "), "<string>", "eval")
    return str(round(float(_value(tree.body)), 2))


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return +_value(operand)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case ast.Tuple(elts=[]):
            return ()
        case ast.Call(func=called):
            raise TypeError(f"'{type(_value(called)).__name__}' object is not callable")
    raise ValueError("Invalid characters in expression")


def _power(base: Any, exponent: Any) -> Any:
    """Stacked powers can take forever; a result that no float can hold fails without being computed."""
    is_whole = isinstance(base, int) and isinstance(exponent, int)
    if is_whole and exponent > 0 and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError("int too large to convert to float")
    return base**exponent
