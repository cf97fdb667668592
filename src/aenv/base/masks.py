"""Masks: the values of secret variables, replaced by *** in what is shown.

Against accidents: what an instance prints, returns or raises. Code that gives a value away on purpose changes its
form first.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

NAMES = "AENV_SECRET_NAMES"
"""The variable that names those with secret values, joined by commas."""
MASK = "***"
_LEAST = 8  # characters: what is shorter stands in ordinary texts by chance


class Masks:
    """Replaces values, as they are and as JSON spells them. False when there are none."""

    __slots__ = ("_forms", "_in_bytes", "_in_text")

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values if len(value) >= _LEAST for form in _forms(value)}
        texts = sorted(found, key=len, reverse=True)  # the longest first: one may hold another
        self._forms = [text.encode(errors="surrogateescape") for text in texts]
        self._in_text = re.compile("|".join(map(re.escape, texts)))
        self._in_bytes = re.compile(b"|".join(map(re.escape, self._forms)))

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        return self._in_text.sub(MASK, text) if self._forms else text

    def value(self, value: Any) -> Any:
        """A copy of a JSON value, masked in its names, texts and numbers."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self._in_text.sub(MASK, value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(part) for part in value]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return MASK if is_number and self._in_text.search(str(value)) else value

    def json(self, body: bytes) -> bytes:
        """A body of JSON, which stays JSON; of anything else the bytes are masked."""
        if not self._forms or not self._in_bytes.search(body):
            return body
        from . import mcp  # its parser is not for every program that writes a log

        try:
            return mcp.dumps(self.value(mcp.loads(body)))
        except ValueError:
            return self._in_bytes.sub(MASK.encode(), body)

    def events(self, body: bytes) -> bytes:
        """The same for server-sent events whose data is JSON, each on one line."""
        if not self._forms or not self._in_bytes.search(body):
            return body
        lines = body.split(b"\n")
        return b"\n".join(
            b"data: " + self.json(line[6:]) if line.startswith(b"data: ") else line for line in lines
        )

    async def stream(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same pieces, masked also where a value lies in two of them. Held back is only what may begin one."""
        held = b""
        try:
            async for piece in pieces:
                shown = self._in_bytes.sub(MASK.encode(), held + piece) if self._forms else piece
                begun = self._begun(shown)
                held = shown[len(shown) - begun :]
                if len(shown) > begun:
                    yield shown[: len(shown) - begun]
            if held:
                yield held
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]

    def _begun(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a value."""
        longest = 0
        for form in self._forms:
            for size in range(min(len(form) - 1, len(data)), longest, -1):
                if data[-size] == form[0] and form.startswith(data[-size:]):
                    longest = size
                    break
        return longest


NONE = Masks()


def of(variables: Mapping[str, str]) -> Masks:
    """The masks of an instance that has these variables."""
    names = variables.get(NAMES)
    return Masks(variables.get(name, "") for name in names.split(",")) if names else NONE


def _forms(value: str) -> Iterable[str]:
    """As it is, and in JSON: once, and as text within JSON."""
    for is_ascii in (False, True):
        once = json.dumps(value, ensure_ascii=is_ascii)[1:-1]
        yield from (value, once, json.dumps(once, ensure_ascii=is_ascii)[1:-1])
