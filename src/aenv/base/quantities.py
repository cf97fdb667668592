"""Durations, sizes and cpu amounts as people write them ("30m", "2Gi", "500m"): the only parsers."""

from __future__ import annotations

import re

from .errors import InvalidRequest

_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kKMGTP]i?)B?\Z")
_SIZE_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m|C|)\Z")


def seconds(value: str | float) -> float:
    """ "30m" → 1800.0, "1h30m" → 5400.0, 90 → 90.0."""
    if isinstance(value, int | float):
        if value < 0 or value != value:
            raise InvalidRequest(f"bad duration {value!r}; it must not be negative")
        return float(value)
    text = value.strip()
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        if text.replace(".", "", 1).isdecimal():
            return float(text)
        raise InvalidRequest(f"bad duration {value!r}; write it as '30s', '30m', '2h' or '1h30m'")
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)


def size_bytes(value: str | int) -> int:
    """ "2Gi" → 2147483648, "5G" → 5000000000, 512 → 512."""
    if isinstance(value, int):
        return value
    match = _SIZE.match(value.strip())
    if not match:
        raise InvalidRequest(f"bad size {value!r}; write it as '512Mi', '2Gi' or '10G'")
    number, unit = match.groups()
    base = 1024 if unit.endswith("i") else 1000
    return int(float(number) * base ** _SIZE_UNITS[unit.rstrip("i").upper()])


def cpus(value: str | float) -> float:
    """ "500m" → 0.5, "2" → 2.0, and the old spelling "1C" → 1.0."""
    match = _CPU.match(str(value).strip())
    if not match or float(match[1]) <= 0:
        raise InvalidRequest(f"bad cpu amount {value!r}; write it as '1', '0.5' or '500m'")
    return float(match[1]) / (1000 if match[2] == "m" else 1)


def spell_seconds(value: float) -> str:
    """1800.0 → "30m": the shortest spelling that `seconds` reads back."""
    whole = round(value)
    if whole != value or whole == 0:
        return f"{value:g}s"
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
