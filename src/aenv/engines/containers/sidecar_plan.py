"""What the second container of an instance is made of, whichever program makes it.

Our runtime serves commands in it, by a socket that only the main container sees. Its image may have no Python: it
is shown the files of the base image, or those of them that matter (`runtime_copy.py`), whose loader starts their
Python.
"""

from __future__ import annotations

from ...base.container_start import VARIABLE as START_VARIABLE
from ...base.container_start import ContainerStart
from ...base.errors import Unsupported
from ...isolation.egress import VARIABLES as PROXY_VARIABLES
from ..base import InstanceSpec, LazySidecar
from .container_plan import SIDECAR_SOCKET

TREE = "/opt/aenv"
"""Where a sidecar sees the files of the base image."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SYS_CHROOT")
"""What package managers do with the files of an image, and no more."""
_NO_LIMIT = 10.0 * 365 * 24 * 3600  # seconds; the call in the main container has its own


def refuse_built(spec: InstanceSpec, engine: str) -> None:
    """Unsupported when the sidecar would have to be built."""
    if isinstance(spec.sidecar, LazySidecar) and (spec.sidecar.dockerfile or spec.sidecar.requirements):
        raise Unsupported(f"the {engine} engine builds no sidecar; build its image, and name it as 'datasource'")


def image_of_sidecar(sidecar: str | LazySidecar, base_image: str) -> str:
    """The image of a sidecar; one that is to be like the host's own system is made of the base image."""
    return sidecar if isinstance(sidecar, str) else base_image


def sidecar_variables(spec: InstanceSpec) -> dict[str, str]:
    """It is told nothing that is meant for the main container, whose variables may hold secrets."""
    start = ContainerStart(socket=SIDECAR_SOCKET, keep_history=False)
    return {
        **(PROXY_VARIABLES if spec.network.kind == "egress" else {}),
        "HOME": "/root",
        "AENV_INSTANCE_ID": spec.id,
        "AENV_CALL_TIMEOUT": f"{_NO_LIMIT:g}",
        START_VARIABLE: start.text(),
    }
