"""Attacks on instances, engines and gateways. The list itself ships with the package: `aenv.attacks.table`."""

from __future__ import annotations

from aenv.attacks.table import ATTACKS, Attack, names

__all__ = ["ATTACKS", "Attack", "names"]
