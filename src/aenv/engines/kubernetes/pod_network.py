"""The network policies of an installation's Pods: its gateways make and keep them, the cluster enforces them.

One for each kind of network. Only gateways may connect to instances. An instance with the network `none` reaches
nothing; one with `full` reaches all but the metadata services of clouds, which give a machine's own credentials.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...base.config import NetworkKind
from ...base.errors import AEnvError, Conflict, Forbidden, InvalidRequest, NotFound
from ...isolation.egress import METADATA
from .cluster_client import Cluster, Policies
from .pod_manifest import NETWORK, OWNER

logger = logging.getLogger("aenv.engines.kubernetes")

KINDS: tuple[NetworkKind, ...] = ("none", "full")
GATEWAY_LABELS = {"app.kubernetes.io/name": "aenv", "app.kubernetes.io/component": "gateway"}
"""What gateways in the cluster are known by, unless the operator says otherwise."""
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NODE_LOCAL_DNS = "169.254.20.10/32"
_DNS = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]

Peer = dict[str, Any]


class PodNetworks:
    """The policies of one installation. `gateways` is as for `peers_of`."""

    def __init__(self, cluster: Cluster, owner: str, gateways: str) -> None:
        self._cluster = cluster
        self._owner = owner
        self._gateways = gateways
        self.problem = ""
        """Why there are no policies; empty when there are."""
        self._are_made = False

    async def keep(self) -> None:
        """Make those that are missing, and put right those that others have changed."""
        peers = peers_of(self._gateways, self._cluster.server, self._cluster.namespace)
        try:
            for kind in KINDS:
                await self._keep(policy(kind, self._owner, peers))
        except Forbidden as error:
            if "may not" not in self.problem:
                logger.warning("instances have no network policies: %s", error.message)
            self.problem = "the gateway may not make NetworkPolicies; give it the rights, or write them yourself"
        except AEnvError as error:
            # Instances start without: they are refused nothing that their own policy would not refuse later.
            logger.warning("the network policies could not be checked: %s", error.message)
            if not self._are_made:
                self.problem = "the gateway could not make its NetworkPolicies yet; its log says why"
        else:
            self.problem, self._are_made = "", True

    async def _keep(self, wanted: dict[str, Any]) -> None:
        name = wanted["metadata"]["name"]
        try:
            found = await self._cluster.get(Policies, name)
        except NotFound:
            try:
                await self._cluster.create(Policies, wanted)
            except Conflict:
                logger.debug("another gateway was faster with policy %s", name)
            return
        if found.get("spec") != wanted["spec"]:
            # Whole: what another client has added must not stay.
            change = {"spec": {"$patch": "replace", **wanted["spec"]}}
            await self._cluster.patch(Policies, name, change, strategic=True)


def policy(kind: NetworkKind, owner: str, gateways: list[Peer]) -> dict[str, Any]:
    """The NetworkPolicy for the installation's Pods of that kind."""
    name = re.sub(r"[^a-z0-9-]+", "-", f"aenv-{owner}-{kind}".lower())[:253]
    selector = {OWNER: owner, NETWORK: kind}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": {OWNER: owner, "app.kubernetes.io/managed-by": "aenv"}},
        "spec": {
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": gateways}],
            **({"egress": _outside()} if kind == "full" else {}),
        },
    }


def _outside() -> list[dict[str, Any]]:
    """All but metadata services; other Pods as well, whose own policies say who may connect to them."""
    blocks = [
        {"ipBlock": {"cidr": everything, "except": [block for block in METADATA if (":" in block) == is_ipv6]}}
        for everything, is_ipv6 in (("0.0.0.0/0", False), ("::/0", True))
    ]
    return [
        {"to": [*blocks, {"namespaceSelector": {}}]},
        {"to": [{"ipBlock": {"cidr": _NODE_LOCAL_DNS}}], "ports": _DNS},
    ]


def peers_of(gateways: str, server: str, namespace: str, own_namespace: Path = _OWN_NAMESPACE) -> list[Peer]:
    """Where gateways connect from: networks ("10.0.0.0/8, 10.1.2.3"), or labels of Pods ("app=aenv,tier=control").

    Unless it is said: in a cluster the labels that gateways usually have, elsewhere our address towards it.
    """
    if gateways and "=" not in gateways:
        return [{"ipBlock": {"cidr": _network(text)}} for text in gateways.split(",")]
    if not gateways and not own_namespace.exists():
        return [{"ipBlock": {"cidr": own_address(server)}}]
    labels = _labels(gateways) if gateways else GATEWAY_LABELS
    ours = own_namespace.read_text().strip() if own_namespace.exists() else namespace
    peer: Peer = {"podSelector": {"matchLabels": dict(labels)}}
    if ours != namespace:
        peer["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": ours}}
    return [peer]


def own_address(server: str) -> str:
    """The network of one address: ours, as the cluster sees it. All networks where that cannot be known."""
    url = urlsplit(server)
    try:
        found = socket.getaddrinfo(url.hostname, url.port or 443, type=socket.SOCK_DGRAM)
        with socket.socket(found[0][0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[0][4])  # sends nothing
            address = ipaddress.ip_address(probe.getsockname()[0])
    except (OSError, ValueError, IndexError) as error:
        raise InvalidRequest(
            f"cannot tell our address towards the cluster: {error}; name it with --kube-gateways"
        ) from None
    if address.is_loopback:
        logger.warning("the cluster is on this machine: name where gateways connect from with --kube-gateways")
        return "0.0.0.0/0"
    return str(ipaddress.ip_network(address))


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text.strip()))
    except ValueError as error:
        raise InvalidRequest(f"setting 'kube_gateways': {error}; write '10.0.0.0/8' or 'label=value'") from None


def _labels(text: str) -> Mapping[str, str]:
    pairs = [part.strip().partition("=") for part in text.split(",")]
    if not all(name and mark and value for name, mark, value in pairs):
        raise InvalidRequest(f"setting 'kube_gateways': {text!r} is not 'label=value,label=value'")
    return {name: value for name, _, value in pairs}
