"""Instances: admitted, created, looked after, ended; in the store for all gateways, alive in one."""
