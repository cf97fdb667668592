"""What the runtime is told that is alone in a sandbox which another program has made, such as gVisor's."""

# No postponed annotations here: `decode` reads the types of the fields.

from dataclasses import dataclass


@dataclass(frozen=True)
class StandaloneOptions:
    path: str
    """The environment's folder."""
    log: str
    socket: str
    requirements: str
    """The folder of the environment's packages; empty for none."""
    keep_history: bool
    arguments: tuple[str, ...]
