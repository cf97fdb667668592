"""Texts that a reader of YAML must refuse, and soon."""

from __future__ import annotations


def _bomb() -> str:
    """A few lines that stand for a thousand million texts."""
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)]
    return "a0: &a0 lol\n" + "".join(levels)


HOSTILE = {
    "an alias bomb": _bomb(),
    "an alias of itself": "a: &a [*a]\n",
    "an object of Python": "a: !!python/object/apply:os.system ['true']\n",
    "lists without end": "[" * 100_000,
    "mappings without end": "{a: " * 100_000,
    "blocks without end": "\n".join(" " * n + "a:" for n in range(1000)),
    "a huge number": f"a: {'9' * 5000}\n",
    "a character that YAML has not": "a: \0\n",
    "a huge file": f"a: {'x' * (1 << 20)}\n",
}
