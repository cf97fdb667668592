"""The way out for instances whose network policy is a list of hosts; it knows no engine."""

from .destinations import METADATA, EgressPolicy
from .gateway_route import PORT as GATEWAY_PORT
from .gateway_route import Connect, GatewayRoute
from .model_route import PORT as MODEL_PORT
from .model_route import ModelRoute
from .server import PORT, VARIABLES, Egress

__all__ = ["GATEWAY_PORT", "METADATA", "MODEL_PORT", "PORT", "VARIABLES", "Connect", "Egress", "EgressPolicy"]
__all__ += ["GatewayRoute", "ModelRoute"]
