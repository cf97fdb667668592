"""The control plane: stores, hub, the lives of instances and services, and the gateway in front of them."""
