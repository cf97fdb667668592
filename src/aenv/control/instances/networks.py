"""What an instance may reach: what its environment asks for, less what the request gives up; if it is allowed."""

from __future__ import annotations

from ...base import config
from ...base.config import Network, NetworkKind, Project
from ...base.errors import Forbidden, InvalidRequest, of_field
from ...base.models import CreateInstance

_MAX_HOSTS = 256
_MAX_HOST_LENGTH = 300
_ORDER: tuple[NetworkKind, ...] = ("none", "egress", "full")


def network_for(request: CreateInstance, project: Project, allowed: NetworkKind) -> Network:
    """InvalidRequest when the request wants more than the environment has, Forbidden when it is too much here."""
    network = own = project.deploy.network
    if request.network is not None:
        network = _read(request)
        if not _is_within(network, own):
            raise InvalidRequest(f"field 'network': environment '{project.ref}' has {_spelled(own)}, and no more")
    if _ORDER.index(network.kind) > _ORDER.index(allowed):
        raise Forbidden(
            f"environment '{project.ref}' asks for the network {_spelled(network)}, and this gateway allows "
            f"{allowed!r} at most (--allow-network); create it with a narrower 'network'"
        )
    return network


def _read(request: CreateInstance) -> Network:
    assert request.network is not None
    hosts = (
        [] if isinstance(request.network, str) else [host for part in request.network.values() for host in part]
    )
    if len(hosts) > _MAX_HOSTS or any(len(host) > _MAX_HOST_LENGTH for host in hosts):
        raise InvalidRequest(f"field 'network': at most {_MAX_HOSTS} hosts of {_MAX_HOST_LENGTH} characters")
    with of_field("network"):
        return config.network(request.network)


def _is_within(asked: Network, own: Network) -> bool:
    if asked.kind == "none" or own.kind == "full":
        return True
    if asked.kind != own.kind:
        return False
    return all(any(_covers(entry, host) for entry in own.hosts) for host in asked.hosts)


def _covers(entry: str, host: str) -> bool:
    """Whether all that `host` stands for, one host or all below a domain, is allowed by `entry`."""
    (name, port), (asked_name, asked_port) = _split(entry), _split(host)
    if port and port != asked_port:
        return False
    return name == asked_name or (name.startswith("*.") and asked_name.endswith(name[1:]))


def _split(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and port.isdecimal() else (host, "")


def _spelled(network: Network) -> str:
    return repr(network.kind) if network.kind != "egress" else f"egress to {', '.join(network.hosts)}"
