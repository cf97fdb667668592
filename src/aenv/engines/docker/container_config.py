"""The plan of a container in the words of Docker's API: what it may do, see and use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..base import InstanceSpec
from ..containers.container_plan import TEMPORARY, WORKSPACE, ContainerPlan
from ..containers.sidecar_plan import CAPABILITIES

_LOG = {"Type": "json-file", "Config": {"max-size": "16m", "max-file": "2"}}
_HOST_HAS_IPV6 = os.path.exists("/proc/sys/net/ipv6")


@dataclass(frozen=True)
class EngineFacts:
    """What is known of the engine of containers."""

    rootless: bool
    runtimes: frozenset[str]
    network: str = "bridge"
    """The network of instances that may reach everything."""


def main_container(plan: ContainerPlan, spec: InstanceSpec, facts: EngineFacts, user: int) -> dict[str, Any]:
    """The container of the environment's own code: no root, no capability, and a root that it cannot change."""
    # A rootless engine maps root inside to its own user, who owns the folders that are mounted.
    owner = 0 if facts.rootless else user
    return {
        **_container(plan),
        **({"Cmd": list(plan.command), "Entrypoint": []} if plan.command else {}),
        "User": f"{owner}:{owner}",
        "WorkingDir": WORKSPACE,
        "HostConfig": {
            **_host(plan, facts),
            "NetworkMode": facts.network if spec.network.kind == "full" else "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "Tmpfs": {TEMPORARY: f"rw,exec,nosuid,nodev,mode=1777,size={plan.limits.storage_bytes}"},
            **({"Runtime": "runsc"} if spec.isolation else {}),
            **({} if spec.network.kind == "full" or not _HOST_HAS_IPV6 else {"Sysctls": _LOOPBACK}),
        },
    }


_LOOPBACK = {"net.ipv6.conf.all.disable_ipv6": "0"}  # "::1" is an address of a host without a network, too


def sidecar_container(plan: ContainerPlan, main: str, facts: EngineFacts) -> dict[str, Any]:
    """The container where the agent's commands run: root in its own files, and in the network of the main one."""
    return {
        **_container(plan),
        "Entrypoint": list(plan.command),
        "Cmd": [],
        "User": "0:0",
        "HostConfig": {
            **_host(plan, facts),
            "NetworkMode": f"container:{main}",
            "CapDrop": ["ALL"],
            "CapAdd": list(CAPABILITIES),
        },
    }


def _container(plan: ContainerPlan) -> dict[str, Any]:
    return {
        "Image": plan.image,
        "Env": [f"{name}={value}" for name, value in plan.variables.items()],
        "Labels": dict(plan.labels),
        "AttachStdin": False,
        "Tty": False,
    }


def _host(plan: ContainerPlan, facts: EngineFacts) -> dict[str, Any]:
    limits = plan.limits
    gpus = [{"Driver": "", "Count": limits.gpus, "Capabilities": [["gpu"]]}] if limits.gpus else []
    return {
        "SecurityOpt": ["no-new-privileges"],
        "Memory": limits.memory_bytes or 0,
        "MemorySwap": limits.memory_bytes or 0,  # both together: no swap beside the memory
        "NanoCpus": round((limits.cpus or 0) * 1e9),
        "PidsLimit": limits.pids,
        "Ulimits": [{"Name": "nofile", "Soft": limits.open_files, "Hard": limits.open_files}],
        "DeviceRequests": gpus,
        "LogConfig": _LOG,
        "RestartPolicy": {"Name": "no"},
        "Mounts": [
            {
                "Type": "bind",
                "Source": str(mount.source),
                "Target": mount.target,
                "ReadOnly": not mount.is_writable,
                "BindOptions": {"Propagation": "rprivate"},
            }
            for mount in plan.mounts
        ],
    }
