"""What a container of an instance is made of, whichever program makes it.

    plan(spec, base_image=..., socket=...)   the main container
    sidecar_plan(spec)                       the second one, where the environment has a sidecar

An environment with an image is started by the image's own command, which runs our runtime. One without is started
in a base image that holds the runtime; its project and its requirements are mounted. In both cases the runtime is
told the rest by variables (`base/container_start.py`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ... import __version__
from ...base.container_start import VARIABLE as START_VARIABLE
from ...base.container_start import ContainerStart
from ...base.errors import StartFailed
from ...isolation.egress import MODEL_PORT
from ...isolation.egress import PORT as EGRESS_PORT
from ...isolation.egress import VARIABLES as PROXY_VARIABLES
from ..base import DATA_PLACE, DEFAULT_LIMITS, InstanceSpec, ResourceLimits
from .container_labels import labels

BASE_IMAGE = f"aenv-base:{__version__}-py{{python}}"
"""The image of environments without one; `{python}` stands for the version of Python, as in 3.11."""
USER = 10001
"""Who runs in the main container, user and group: not root."""
PORT = 8081
"""Where the runtime listens when it is not told a socket."""

WORKSPACE = "/workspace"
TEMPORARY = "/tmp"
PROJECT = "/environment"
REQUIREMENTS = "/requirements"
RUN = "/run/aenv"
"""A folder that the main container may write to: there the runtime makes its socket."""
SOCKET = f"{RUN}/socket"
WAYS_OUT = "/run/aenv-out"
"""A folder that it may only read: with the sockets that lead to the egress and to the model."""
EGRESS_SOCKET = f"{WAYS_OUT}/egress"
MODEL_SOCKET = f"{WAYS_OUT}/model"
FILES = f"{RUN}/files"
"""Where an engine that cannot reach the workspace from outside has mounted the folder that it lies in."""
VARIABLES_FILE = f"{RUN}/variables"
"""Where an instance notes its variables that its container was not started with."""
SHARED = "/shared"
"""A folder that the main container and the sidecar share."""
SIDECAR_RUN = "/run/aenv-sidecar"
"""Another one, where the sidecar listens."""
SIDECAR_SOCKET = f"{SIDECAR_RUN}/socket"


@dataclass(frozen=True)
class Mount:
    """A folder of the host that a container sees."""

    source: Path
    target: str
    is_writable: bool = False


@dataclass(frozen=True)
class ContainerPlan:
    """A container, complete but for what only its engine knows."""

    image: str
    command: tuple[str, ...]
    """Empty for the image's own."""
    variables: Mapping[str, str]
    """Those of the image stay, where these do not say otherwise."""
    labels: Mapping[str, str]
    limits: ResourceLimits
    mounts: tuple[Mount, ...] = ()


def plan(spec: InstanceSpec, *, base_image: str = BASE_IMAGE, socket: str = "") -> ContainerPlan:
    """The main container. With `socket` it listens there, and else on PORT of all its addresses.

    StartFailed when its storage would hide what the instance needs.
    """
    start = ContainerStart(
        socket=socket,
        arguments=spec.arguments,
        keep_history=spec.keep_history,
        drain=spec.drain,
        ways_out=ways_out(spec),
    )
    return ContainerPlan(
        image=image_of(spec, base_image),
        command=() if spec.image else command(spec),
        variables=variables(spec, start),
        labels=labels(spec),
        limits=limits(spec),
        mounts=mounts(spec),
    )


def image_of(spec: InstanceSpec, base_image: str = BASE_IMAGE) -> str:
    """The image of the environment, else the base image of the Python that its requirements are for."""
    return spec.image or base_image.replace("{python}", python_version(spec))


def python_version(spec: InstanceSpec) -> str:
    """ "3.11": of the Python that the instance runs on."""
    found = re.match(r"cpython-(\d)(\d+) ", spec.python.platform) if spec.python else None
    return f"{found[1]}.{found[2]}" if found else f"{sys.version_info.major}.{sys.version_info.minor}"


def command(spec: InstanceSpec) -> tuple[str, ...]:
    """Starts the runtime in a base image, on the project that is mounted."""
    requirements = ("--requirements", REQUIREMENTS) if spec.requirements else ()
    return ("python3", "-m", "aenv.main", PROJECT, *requirements)


def variables(spec: InstanceSpec, start: ContainerStart) -> dict[str, str]:
    """Each once. The instance's and the environment's are in the spec already, the former before the latter.

    Our own names come last, so that no creator can set them.
    """
    proxies = PROXY_VARIABLES if spec.network.kind == "egress" else {}
    own = {
        "AENV_INSTANCE_ID": spec.id,
        "AENV_ENVIRONMENT": spec.environment,
        "AENV_WORKSPACE": WORKSPACE,
        START_VARIABLE: start.text(),
    }
    if spec.call_timeout is not None:
        own["AENV_CALL_TIMEOUT"] = f"{spec.call_timeout:g}"
    if spec.storage:
        own["AENV_STORAGE"] = spec.storage_place
    if spec.sidecar:
        own |= {"AENV_SIDECAR": SIDECAR_SOCKET, "AENV_SECOND_PART": SIDECAR_SOCKET}
    return {
        "LANG": "C.UTF-8",
        "HOME": WORKSPACE,
        "TMPDIR": TEMPORARY,
        **proxies,
        **spec.environment_variables,
        **({spec.data_variable: DATA_PLACE} if spec.data_variable else {}),
        **{variable: folder_place(variable) for variable in spec.folders},
        **own,
    }


def ways_out(spec: InstanceSpec) -> dict[str, str]:
    """Ports of the container's loopback that lead out, where it has no other way to the egress or the model."""
    out = {str(EGRESS_PORT): EGRESS_SOCKET} if spec.network.kind == "egress" else {}
    return {**out, **({str(MODEL_PORT): MODEL_SOCKET} if spec.model else {})}


def mounts(spec: InstanceSpec) -> tuple[Mount, ...]:
    """Folders of the host that the spec names, for an engine that shares the host's files."""
    found = []
    if not spec.image:
        found.append(Mount(spec.project.absolute(), PROJECT))
        if spec.requirements:
            found.append(Mount(spec.requirements.absolute(), REQUIREMENTS))
    if spec.data:
        found.append(Mount(spec.data.absolute(), DATA_PLACE))
    found += [Mount(folder.absolute(), folder_place(variable)) for variable, folder in spec.folders.items()]
    if spec.storage:
        needed = [WORKSPACE, TEMPORARY, RUN, WAYS_OUT, SHARED, SIDECAR_RUN, *(mount.target for mount in found)]
        if hidden := [place for place in needed if _overlap(place, spec.storage_place)]:
            raise StartFailed(
                f"storage cannot be mounted at {spec.storage_place!r}: the instance needs {hidden[0]!r}"
            )
        found.append(Mount(spec.storage.absolute(), spec.storage_place, is_writable=True))
    return tuple(found)


def limits(spec: InstanceSpec) -> ResourceLimits:
    """What the instance may use: what it asks for, else what every engine gives."""
    return replace(
        DEFAULT_LIMITS, **{name: value for name, value in vars(spec.limits).items() if value is not None}
    )


def folder_place(variable: str) -> str:
    """Where an instance sees a further folder."""
    return f"/folders/{variable.lower()}"


def _overlap(one: str, other: str) -> bool:
    """Whether a folder is the other one, or either lies in the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
