"""Exact arithmetic on text: expressions worked out in fractions, and numbers read and written without rounding."""

from __future__ import annotations

import ast
import math
import re
from fractions import Fraction

MAX_LENGTH = 500
_MAX_EXPONENT = 1000
_MAX_BITS = 20_000  # of a numerator or denominator: some six thousand digits
_MAX_DIGITS_SHOWN = 1000
_LITERAL = re.compile(r"\d+(\.\d*)?|\.\d+")
_ANSWER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(\s*/\s*[-+]?\d+(\.\d+)?)?")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class NotExact(ValueError):
    """A text that is not a number, or no expression that can be worked out; says why."""


def evaluate(expression: str) -> Fraction:
    """The exact value of numbers with + - * / // % **, brackets, abs, min, max, floor, ceil and round."""
    if len(expression) > MAX_LENGTH:
        raise NotExact(f"an expression has at most {MAX_LENGTH} characters, this one has {len(expression)}")
    text = _GROUPED.sub("", expression).replace("×", "*").replace("÷", "/").replace("−", "-").strip()
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotExact(f"{expression!r} is not an expression; write one such as '(3 + 4) * 2.5'") from None
    try:
        return _value(tree.body, text)
    except ZeroDivisionError:
        raise NotExact(f"{expression!r} divides by zero") from None
    except RecursionError:
        raise NotExact(f"{expression[:40]!r}… is nested too deeply") from None


def number_of(answer: str) -> Fraction:
    """The number that an answer is: '42', '1,250.50', '$12', '3/4'."""
    if len(answer) > MAX_LENGTH:
        raise NotExact(f"a number has at most {MAX_LENGTH} characters, this answer has {len(answer)}")
    text = _GROUPED.sub("", answer.strip().strip("$€£").rstrip(".").strip())
    if not (text.isascii() and _ANSWER.fullmatch(text)):
        raise NotExact(f"{answer[:60]!r} is not a number; give one such as '42', '12.5' or '3/4', without words")
    over, _, under = text.partition("/")
    try:
        return Fraction(over.strip()) / Fraction(under.strip() or "1")
    except ZeroDivisionError:
        raise NotExact(f"{answer!r} divides by zero") from None


def spelled(value: Fraction) -> str:
    """A number as it is written exactly: '42', '12.5', '1/3'."""
    if max(abs(value.numerator), value.denominator).bit_length() > _MAX_DIGITS_SHOWN * 3:
        raise NotExact(f"the result has more than {_MAX_DIGITS_SHOWN} digits")
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest, count = rest // prime, count + 1
        places = max(places, count)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _value(node: ast.expr, text: str) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            written = ast.get_source_segment(text, node) or ""
            if not _LITERAL.fullmatch(written):  # 0.1 as it is written, not as the nearest float; and no 1e999999
                raise NotExact(f"write {written!r} in digits")
            return Fraction(written)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, text)
        case ast.BinOp(left=left, op=operation, right=right):
            return _bounded(_combined(_value(left, text), operation, _value(right, text)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _called(name, [_value(argument, text) for argument in arguments])
        case ast.Name(id=name):
            raise NotExact(f"there is no {name!r} here; use numbers")
    raise NotExact("use numbers, + - * / // % **, brackets, abs, min, max, floor, ceil and round only")


def _combined(left: Fraction, operation: ast.operator, right: Fraction) -> Fraction:
    match operation:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return Fraction(left // right)
        case ast.Mod():
            return left % right
        case ast.Pow():
            return _power(left, right)
    raise NotExact("use + - * / // % ** only")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > _MAX_EXPONENT:
        raise NotExact(f"an exponent is a whole number up to {_MAX_EXPONENT}, not {str(exponent)[:40]}")
    bits = max(abs(base.numerator), base.denominator).bit_length() * abs(exponent.numerator)
    if bits > _MAX_BITS:  # before it is worked out
        raise NotExact("the result is too large")
    return Fraction(base**exponent.numerator)


def _called(name: str, arguments: list[Fraction]) -> Fraction:
    match name, arguments:
        case "abs", [value]:
            return abs(value)
        case "floor", [value]:
            return Fraction(math.floor(value))
        case "ceil", [value]:
            return Fraction(math.ceil(value))
        case "round", [value]:
            return Fraction(round(value))
        case "round", [value, places] if places.denominator == 1 and abs(places) <= 20:
            return Fraction(round(value, places.numerator))
        case "min", [_, *_]:
            return min(arguments)
        case "max", [_, *_]:
            return max(arguments)
    raise NotExact(
        f"cannot call {name!r} like this; there are abs, min, max, floor, ceil and round(value, places)"
    )


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator).bit_length() > _MAX_BITS:
        raise NotExact("the result is too large")
    return value
