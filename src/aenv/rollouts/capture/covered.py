"""Secrets in what passes by: each is covered with `***`, also where it comes in two pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence


def covered(data: bytes, secrets: Sequence[str]) -> bytes:
    """The data with `***` for each secret, as it is and as JSON spells it."""
    for text in _spelled(secrets):
        data = data.replace(text, b"***")
    return data


class CoveredStream:
    """A stream without secrets. What may be the beginning of one waits for the next piece."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._held = b""

    def piece(self, data: bytes) -> bytes:
        data = covered(self._held + data, self._secrets)
        held = max((_begun(data, text) for text in _spelled(self._secrets)), default=0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def rest(self) -> bytes:
        """What waited, at the end of the stream."""
        data, self._held = self._held, b""
        return data


def _spelled(secrets: Sequence[str]) -> list[bytes]:
    found = {text for secret in secrets if secret for text in (secret, json.dumps(secret)[1:-1])}
    return [text.encode() for text in sorted(found, key=len, reverse=True)]


def _begun(data: bytes, secret: bytes) -> int:
    """How much of the secret stands at the end of the data."""
    most = min(len(data), len(secret) - 1)
    return next((size for size in range(most, 0, -1) if data.endswith(secret[:size])), 0)
