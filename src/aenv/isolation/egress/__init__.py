"""The way out for instances whose network policy is a list of hosts; it knows no engine."""

from .destinations import EgressPolicy
from .server import PORT, VARIABLES, Egress

__all__ = ["PORT", "VARIABLES", "Egress", "EgressPolicy"]
