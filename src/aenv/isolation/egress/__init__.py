"""The way out for instances whose network policy is a list of hosts; it knows no engine."""

from .destinations import Policy
from .proxy import PORT, VARIABLES, Egress

__all__ = ["PORT", "VARIABLES", "Egress", "Policy"]
