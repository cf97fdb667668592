"""The way out for instances whose network policy is a list of hosts; it knows no engine."""

from .destinations import EgressPolicy
from .model_route import PORT as MODEL_PORT
from .model_route import ModelRoute
from .server import PORT, VARIABLES, Egress

__all__ = ["MODEL_PORT", "PORT", "VARIABLES", "Egress", "EgressPolicy", "ModelRoute"]
