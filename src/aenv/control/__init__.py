"""The control plane: stores, hub, instances and services, and the gateway in front of them."""
