"""Tokens of the small policy: words by hash, numbers by reference, and the few words of a tool call.

A model this small cannot learn to copy digits. So the n-th number of an episode, told or worked out, is the token
Nn, read and said alike; the program puts the digits in. What the model must learn is which numbers to take, what
to do with them, in which order, and when to answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from .dialogue import ToolCall, Transcript

_PIECE = re.compile(r"\d+(?:\.\d+)?|[^\W\d]+|[^\w\s]")
_NUMBER = re.compile(r"\d")
_NUMBERS = 16
_BUCKETS = 1024
OPERATORS = ("+", "-", "*", "/")
CONSTANTS = ("2", "3", "100")
END, CALCULATE, SUBMIT = 0, 1, 2
_FIRST_OPERATOR = 3
_FIRST_CONSTANT = _FIRST_OPERATOR + len(OPERATORS)
_FIRST_NUMBER = _FIRST_CONSTANT + len(CONSTANTS)
SAID = _FIRST_NUMBER + _NUMBERS
"""How many tokens the policy can say; those from here on it only reads."""
_RESULT, _FAILED, _FIRST_WORD = SAID, SAID + 1, SAID + 2
READ = _FIRST_WORD + _BUCKETS
"""How many tokens there are in all."""
LONGEST_CALL = 8


@dataclass
class Sheet:
    """The numbers of an episode, by which tokens refer to them."""

    numbers: list[str] = field(default_factory=list)

    def read(self, problem: str) -> list[int]:
        """The tokens of a problem; its numbers are noted."""
        return [self._note(piece) if _NUMBER.match(piece) else _word(piece) for piece in _PIECE.findall(problem)]

    def hear(self, result: str, is_error: bool) -> list[int]:
        """The tokens of a tool's result."""
        return [_FAILED] if is_error else [_RESULT, self._note(result)]

    def _note(self, number: str) -> int:
        self.numbers.append(number)
        return _FIRST_NUMBER + min(len(self.numbers), _NUMBERS) - 1

    def call(self, tokens: Sequence[int]) -> ToolCall | None:
        """The call that tokens spell; None where they spell none. The tool itself says what it cannot work out."""
        if len(tokens) < 3 or tokens[-1] != END or tokens[0] not in (CALCULATE, SUBMIT):
            return None
        tool = "submit_answer" if tokens[0] == SUBMIT else "calculate"
        return ToolCall(tool, " ".join(self._spelled(token) for token in tokens[1:-1]))

    def _spelled(self, token: int) -> str:
        if token >= _FIRST_NUMBER:
            index = token - _FIRST_NUMBER
            return self.numbers[index] if index < len(self.numbers) else "?"
        if token >= _FIRST_CONSTANT:
            return CONSTANTS[token - _FIRST_CONSTANT]
        return OPERATORS[token - _FIRST_OPERATOR] if token >= _FIRST_OPERATOR else "?"


def _word(piece: str) -> int:
    return _FIRST_WORD + crc32(piece.lower().encode()) % _BUCKETS


def demonstration(problem: str, draw: random.Random) -> Transcript:
    """Calculations with operators drawn at random, and the last result as the answer.

    Half of them take the numbers in the order in which they are told and go on with each result; the others take
    any numbers, so that the policy has seen that this can be otherwise.
    """
    sheet, shown = Sheet(), Transcript()
    shown.read(sheet.read(problem))
    told, in_order = min(len(sheet.numbers), _NUMBERS), draw.random() < 0.5
    for step in range(max(1, told - 1) if in_order else draw.choice((1, 2, 3))):
        known = min(len(sheet.numbers), _NUMBERS)
        operands = [_FIRST_NUMBER + draw.randrange(known) for _ in range(2)]
        if in_order:
            operands = [_FIRST_NUMBER + (known - 1 if step else 0), _FIRST_NUMBER + min(step + 1, told - 1)]
        elif draw.random() < 0.1:
            operands[draw.randrange(2)] = _FIRST_CONSTANT + draw.randrange(len(CONSTANTS))
        operator = _FIRST_OPERATOR + draw.randrange(len(OPERATORS))
        _say(shown, CALCULATE, operands[0], operator, operands[1], END)
        shown.read(sheet.hear("0", is_error=False))
    _say(shown, SUBMIT, _FIRST_NUMBER + min(len(sheet.numbers), _NUMBERS) - 1, END)
    return shown


def _say(shown: Transcript, *tokens: int) -> None:
    for token in tokens:
        shown.say(token, 0.0)
