"""Secrets among variables of instances: known by name, or as passwords in URLs, and kept out of journals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

MASKED = "***"
SHORTEST = 8
"""A shorter value is a word that others may say, and is covered only where it is the variable's own."""
_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|(^|_)PASS(_|$)|PWD|CREDENTIAL|COOKIE|AUTH(?!ORS?(_|$))", re.IGNORECASE
)
_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s/@]+)@", re.IGNORECASE)
_STRUCTURE = ("type", "schema", "rollout", "sha256", "tools", "outcome", "api")

GivenVariables = Mapping[str, str | Mapping[str, str]]


def told(variables: GivenVariables) -> dict[str, str]:
    """The variables as a journal has them."""
    return {
        name: value if isinstance(value, str) and not _is_secret(name, value) else MASKED
        for name, value in variables.items()
    }


def values(variables: GivenVariables) -> set[str]:
    """What must be in no line: the secret values, and the passwords in them."""
    found: set[str] = set()
    for name, value in variables.items():
        if isinstance(value, str) and _is_secret(name, value):
            passwords = _IN_URL.findall(value)
            found |= {value, *passwords, *map(unquote, passwords)}
    return {value for value in found if len(value) >= SHORTEST and value != MASKED}


def hidden(value: Any, secrets: Iterable[str]) -> Any:
    """The value with `***` for each secret in its texts."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASKED)
        return value
    if isinstance(value, dict):
        return {hidden(name, secrets): hidden(one, secrets) for name, one in value.items()}
    return [hidden(one, secrets) for one in value] if isinstance(value, list | tuple) else value


def hidden_line(line: bytes, secrets: Iterable[str]) -> bytes:
    """A line of a journal without secrets. What makes it a line stays, whatever the secrets are."""
    by_length = sorted(secrets, key=len, reverse=True)  # one may be part of another
    if not any(json.dumps(one, ensure_ascii=False)[1:-1].encode() in line for one in by_length):
        return line
    kept = {
        name: value if name in _STRUCTURE and isinstance(value, str) else hidden(value, by_length)
        for name, value in json.loads(line).items()
    }
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def _is_secret(name: str, value: str) -> bool:
    return bool(_NAME.search(name) or _IN_URL.search(value))
