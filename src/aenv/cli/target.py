"""What a command talks to: an `Environment` at the address that the command line gave.

Its address wins over $DUMMY_INSTANCE_IP, and nothing is retried: a person at a shell wants to know at once.
"""

from __future__ import annotations

from ..client.environment import Environment


def runtime(name: str, address: str, timeout: float) -> Environment:
    """The environment that a runtime serves at `address`."""
    return Environment(name, runtime_url=address, timeout=timeout, max_retries=0)


def behind_gateway(
    name: str,
    gateway: str | None,
    timeout: float = 60.0,
    *,
    instance: str | None = None,
    ttl: str | None = None,
    api_key: str | None = None,
) -> Environment:
    """An instance behind a gateway: a new one, or `instance`, which is not ended when it is released."""
    return Environment(
        name,
        ttl=ttl,
        aenv_url=gateway,
        api_key=api_key,
        runtime_url="",
        attach=instance,
        timeout=timeout,
        max_retries=0,
    )
