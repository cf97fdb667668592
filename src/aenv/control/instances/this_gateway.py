"""This gateway as a maker of instances: its names among other gateways, and how it starts instances."""

from __future__ import annotations

from dataclasses import dataclass

from .admission import DEFAULT_RULES, Rules


@dataclass(frozen=True)
class ThisGateway:
    """The same for as long as the process runs."""

    node: str
    """Whose engine it has: gateways of one node can end each other's instances."""
    name: str
    """Unique among gateways; a record says by it which of them supervises the instance."""
    start_timeout: float = 60.0
    keep_history: bool = True
    rules: Rules = DEFAULT_RULES
