"""What an instance is told when it gets an owner: its variables, its folder and its arguments."""

from __future__ import annotations

import os
import sys

from ...base import settings
from ...isolation.egress import VARIABLES as PROXY_VARIABLES
from ...isolation.sandbox import protocol
from ...isolation.sandbox.inside_paths import WORKSPACE
from ...isolation.sandbox.rootfs import Rootfs
from ..base import DATA_PLACE, InstanceSpec
from .kinds import folder_place
from .spares import SOCKET


def assignment_of(spec: InstanceSpec, root: Rootfs, *, rehearse: bool) -> protocol.Assignment:
    """What a spare instance is told."""
    return protocol.Assignment(
        variables=variables_of(spec, root),
        folder=WORKSPACE,
        arguments=spec.arguments,
        # What is the runtime's own may be wrong. Otherwise nothing fails once the environment is loaded.
        confirm=any(name.startswith("AENV_") for name in spec.environment_variables),
        rehearse=rehearse,
    )


def variables_of(spec: InstanceSpec, root: Rootfs) -> dict[str, str]:
    """The variables of an instance: few, and none of this process's own, which may be secret."""
    python = os.path.dirname(spec.python.executable if spec.python else sys.executable)
    variables = {
        "PATH": f"{python}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": settings.variables().get("LANG", "C.UTF-8"),
        "HOME": WORKSPACE,
        "TMPDIR": "/tmp",
        **(PROXY_VARIABLES if spec.network.kind == "egress" else {}),
        **root.variables,
        **spec.environment_variables,
        **({spec.data_variable: DATA_PLACE} if spec.data_variable else {}),
        **{variable: folder_place(variable) for variable in spec.folders},
        "AENV_INSTANCE_ID": spec.id,
        "AENV_ENVIRONMENT": spec.environment,
        "AENV_WORKSPACE": WORKSPACE,
    }
    if spec.call_timeout is not None:
        variables["AENV_CALL_TIMEOUT"] = f"{spec.call_timeout:g}"
    if spec.storage:
        variables["AENV_STORAGE"] = spec.storage_place
    if spec.sidecar:
        # The second is its old name, which environments that were pushed may read.
        variables |= {"AENV_SIDECAR": SOCKET, "AENV_SECOND_PART": SOCKET}
    return variables
