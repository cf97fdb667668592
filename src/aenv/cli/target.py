"""What a command talks to: an `Environment` at the address that the command line gave."""

from __future__ import annotations

from ..client.environment import Environment


def runtime(name: str, address: str, timeout: float) -> Environment:
    """The environment that a runtime serves at `address`."""
    env = Environment(name, timeout=timeout, max_retries=0)
    env.dummy_instance_ip = address
    return env


def behind_gateway(
    name: str, gateway: str | None, timeout: float = 60.0, instance: str | None = None
) -> Environment:
    """An instance behind a gateway: a new one, or `instance`, which is not ended when it is released."""
    env = Environment(name, aenv_url=gateway, attach=instance, timeout=timeout, max_retries=0)
    env.dummy_instance_ip = None  # a command's own address wins over $DUMMY_INSTANCE_IP
    return env
