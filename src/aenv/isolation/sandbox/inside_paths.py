"""Where things are inside an instance, as code inside and the host both know them."""

from __future__ import annotations

WORKSPACE = "/workspace"
ENVIRONMENT = "/environment"
LOG = "/var/log/instance.log"
VARIABLES = "/run/variables.json"
"""Its variables, for commands that are run beside the environment."""
ORIGINAL = "/.original"
"""In a sidecar: its root as it was before anything was written, read-only."""
OOM_SCORE = "500"
"""When memory is short, instances go before the programs of the host."""
